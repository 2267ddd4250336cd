"""`python -m runtime`: prepare this machine for the services without starting them."""

import logging

from runtime import class_archive, exclusive, fetch_jars, set_up
from truelog.support.settings import default_home

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with exclusive(default_home()):
        settings = set_up(default_home())
        fetch_jars(settings)
        class_archive.make(settings)
