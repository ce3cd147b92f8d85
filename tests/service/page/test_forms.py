"""What plain forms send is read as browsers send it, and what is no form is refused in words."""

import pytest

from evenhand.errors import InvalidInput
from evenhand.service.page.forms import MOST_FIELDS, read_form

MULTIPART = "multipart/form-data; boundary=----edge"


def multipart(*parts):
    lines = []
    for head, body in parts:
        lines += [b"------edge", b"Content-Disposition: form-data; " + head, b"", body]
    return b"\r\n".join([*lines, b"------edge--", b""])


def test_fields_come_in_their_order():
    form = read_form(b"arm=b1&arm=b2&why=no+key%21", "application/x-www-form-urlencoded")
    assert form.texts("arm") == ["b1", "b2"]
    assert form.text("why") == "no key!"
    assert form.text("absent") == ""
    assert form.has("arm")
    assert not form.has("absent")


def test_a_file_comes_as_it_is():
    table = "arm,state\r\nKöln,fine\r\n".encode()
    body = multipart((b'name="who"', b"Ada"), (b'name="file"; filename="a b.csv"', table), (b'name="text"', b""))
    form = read_form(body, MULTIPART)
    assert form.text("who") == "Ada"
    assert form.table("file", "text") == ("a b.csv", table)


def test_typed_rows_stand_in_for_a_file():
    body = multipart((b'name="file"; filename=""', b""), (b'name="text"', b"arm,state\nb1,fine"))
    assert read_form(body, MULTIPART).table("file", "text")[1] == b"arm,state\nb1,fine"


def test_no_table_at_all_is_told():
    body = multipart((b'name="file"; filename=""', b""), (b'name="text"', b"  "))
    with pytest.raises(InvalidInput, match="choose a file, or type the rows"):
        read_form(body, MULTIPART).table("file", "text")


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", MULTIPART])
def test_what_is_no_form_is_refused(kind):
    bodies = [b"\xff=\xfe", b"&".join([b"a=1"] * (MOST_FIELDS + 1))] if "url" in kind else [b"", b"no parts"]
    for body in bodies:
        with pytest.raises(InvalidInput, match="load the page anew"):
            read_form(body, kind)
