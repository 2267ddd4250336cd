"""An erasure removes the lines that name a person from what imports have kept aside. The files stay private."""

import stat
import uuid
from pathlib import Path

import pytest

from truelog.erasure.erasure import Erasure, Erasures
from truelog.erasure.subject import Subject
from truelog.forgetting.import_lines import forget_lines
from truelog.log.positions import Positions
from truelog.sources.access_log import kept_aside
from truelog.support.errors import NotForgotten
from truelog.support.files import private_folder
from truelog.support.settings import Settings

PERSON = "xanthippe-4711"
SUBJECTS = frozenset({Subject.of(b"s", "person_id", PERSON)})
ERASURES = Erasures(b"s", (Erasure(uuid.uuid4(), SUBJECTS, {}, Positions()),))
NAMED = f'192.0.2.7 - {PERSON} [bad time] "GET /p?person_id={PERSON} HTTP/1.1" 200 1\n'.encode()
OTHERS = b'192.0.2.8 - bob [bad time] "GET /\xff\xfe" 200 1\nxanthippe-47110\r\n', b"not a line\n"


@pytest.fixture
def home(settings: Settings, tmp_path: Path) -> Settings:
    return settings.model_copy(update={"home": tmp_path})


@pytest.fixture
def folder(home: Settings) -> Path:
    return private_folder(kept_aside.folder(home))


def test_a_home_without_imports_has_no_lines(home: Settings) -> None:
    forget_lines(home, ERASURES)


def test_only_the_lines_of_the_person_go(home: Settings, folder: Path) -> None:
    mixed, own, other = (folder / f"{each}.malformed" for each in ("access.log", "access.log.2", "other"))
    mixed.write_bytes(OTHERS[0] + NAMED + OTHERS[1])
    own.write_bytes(NAMED)
    other.write_bytes(OTHERS[1])
    (folder / ".access.log.malformed.77").write_bytes(NAMED)  # an erasure was killed while it wrote
    untouched = other.stat()
    for _ in range(2):
        forget_lines(home, ERASURES)
        assert sorted(folder.iterdir()) == [mixed, other]
        assert mixed.read_bytes() == OTHERS[0] + OTHERS[1]
        assert stat.S_IMODE(mixed.stat().st_mode) == 0o600
    assert (other.stat().st_ino, other.stat().st_mtime_ns) == (untouched.st_ino, untouched.st_mtime_ns)


def test_an_erasure_waits_for_an_import_that_is_writing(home: Settings, folder: Path) -> None:
    with (folder / "access.log.malformed").open("xb") as writing:
        kept_aside.take(writing, wait=True)
        writing.write(NAMED)
        writing.flush()
        with pytest.raises(NotForgotten, match="an import is writing"):
            forget_lines(home, ERASURES)
        assert Path(writing.name).read_bytes() == NAMED
    forget_lines(home, ERASURES)
    assert not [*folder.iterdir()]


def test_a_file_that_cannot_be_changed_is_named(home: Settings, folder: Path) -> None:
    (folder / "access.log.malformed").mkdir()
    with pytest.raises(NotForgotten, match=r"access\.log\.malformed may have lines of the person"):
        forget_lines(home, ERASURES)
