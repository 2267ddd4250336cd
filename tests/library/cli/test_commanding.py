"""`truelog commands list` and `show`, which need no service."""

from tests.command import answer, truelog
from truelog.commands import catalogue


def test_the_commands_are_listed_with_what_they_do() -> None:
    listed = {each["command"]: each for each in answer("commands", "list")["commands"]}
    assert listed.keys() == catalogue.load().commands.keys()
    assert listed["check_out_cart"] == {
        "command": "check_out_cart",
        "event": "cart_event",
        "about": "Check out a cart.",
    }
    assert "Check out a cart." in truelog("commands", "list").stdout


def test_the_fields_of_a_command_are_shown() -> None:
    shown = answer("commands", "show", "add_to_cart")
    assert shown["fields"]["required"] == ["cart_id", "visitor_id", "product", "quantity"]
    text = truelog("commands", "show", "add_to_cart").stdout
    assert "quantity  integer  required  Items to add; at least 1." in text


def test_an_unknown_command_is_refused() -> None:
    assert "choose from add_to_cart" in truelog("commands", "show", "surprise").stderr
