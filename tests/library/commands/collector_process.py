"""The collector with the commands of the folder that its argument names."""

import sys
from pathlib import Path

from truelog.commands import catalogue
from truelog.services.collector import service

if __name__ == "__main__":
    catalogue.load.__defaults__ = (Path(sys.argv[1]),)
    service.main()
