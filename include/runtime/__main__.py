"""`python -m runtime`: make this machine able to start the services, without starting them."""

import logging

from runtime import fetch_jars, set_up
from truelog.settings import default_home

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    fetch_jars(set_up(default_home()))
