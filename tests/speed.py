"""Records speeds that tests measure. The summary shows them; `bench/` judges them, because other work on the
machine changes them and a test must not fail because of that.
"""

from collections.abc import Iterator

import pytest

_KEY = "speed"
_recorded: list[tuple[str, float, str]] = []  # since the last report


def record_speed(name: str, value: float, unit: str = "s") -> None:
    """Show a measured value in the summary of the test run."""
    _recorded.append((name, value, unit))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> None:
    """Attach the speeds to the test's report, which an xdist worker sends to the controller."""
    item.user_properties.extend((_KEY, each) for each in _recorded)
    _recorded.clear()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the speeds, each once, although the later reports of a test repeat those of the earlier ones."""
    lines = dict.fromkeys(line for reports in terminalreporter.stats.values() for line in _lines(reports))
    for line in sorted(lines):
        terminalreporter.write_line(line)


def _lines(reports: list[object]) -> Iterator[str]:
    for report in reports:
        if isinstance(report, pytest.TestReport):
            for key, value in report.user_properties:
                if key == _KEY and isinstance(value, list | tuple):  # xdist makes a list of a tuple
                    name, measured, unit = value
                    number = f"{measured:,.0f}" if measured >= 100 else f"{measured:.3g}"
                yield f"speed: {name}: {number} {unit} ({report.nodeid.partition('::')[0]})"
