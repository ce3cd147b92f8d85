"""What plain forms send is read as browsers send it, and what is no form is refused in words."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from evenhand.errors import InvalidInputError
from evenhand.programme import read_form as parse

from ...conftest import mentions

MULTIPART = "multipart/form-data; boundary=----edge"
FIELDS, SIZE = 100, 2**16
"""Limits of these tests."""


def read_form(body, kind):
    """In a thread, as a server does: in this one a browser's event loop may run already."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(parse, body, kind, FIELDS, SIZE).result()


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


def test_a_file_comes_as_it_is():
    table = "arm,state\r\nKöln,fine\r\n".encode()
    body = multipart((b'name="who"', b"Ada"), (b'name="file"; filename="a b.csv"', table), (b'name="text"', b""))
    form = read_form(body, MULTIPART)
    assert form.text("who") == "Ada"
    assert form.given_table == ("a b.csv", table)


def test_typed_rows_stand_in_for_a_file():
    body = multipart((b'name="file"; filename=""', b""), (b'name="text"', b"arm,state\nb1,fine"))
    assert read_form(body, MULTIPART).given_table[1] == b"arm,state\nb1,fine"


def test_no_table_at_all_is_reported():
    body = multipart((b'name="file"; filename=""', b""), (b'name="text"', b"  "))
    with pytest.raises(InvalidInputError, check=mentions("table")):
        read_form(body, MULTIPART).table()


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", MULTIPART])
def test_an_invalid_form_is_refused(kind):
    file, field = (b'name="file"; filename="a.csv"', b"arm"), (b'name="a"', b"1")
    many_heads = multipart((b'name="a"' + b"\r\nX: y" * 20, b"1"))
    too_much = [multipart(file, file), multipart(*[field] * (FIELDS + 1)), many_heads]
    too_much += [multipart((b'name="a"', b"x" * (SIZE + 1))), multipart((b'name="' + b"x" * 5000 + b'"', b"1"))]
    fields = [b"&" * (FIELDS + 1), b"&".join([b"a=1"] * (FIELDS + 1)), b"a=" + b"x" * (SIZE + 1)]
    for body in fields if "url" in kind else [b"no parts", *too_much]:
        with pytest.raises(InvalidInputError, check=mentions("form")):
            read_form(body, kind)


def test_parts_within_parts_are_text():
    """The parser of e-mail took minutes for a few hundred kilobytes of this."""
    body = nested(1000)
    assert read_form(multipart((b'name="a"', body)), MULTIPART).text("a").encode() == body.strip()


def nested(depth):
    heads = (b"--%d\r\nContent-Type: multipart/mixed; boundary=%d\r\n\r\n" % (n, n + 1) for n in range(depth))
    return b"".join(heads)


def test_the_codec_is_not_the_clients_to_choose():
    """Some codecs take a time that is quadratic in the size, Punycode among them."""
    body = multipart((b'name="a"', "Köln".encode()))
    assert read_form(body, MULTIPART + "; charset=punycode").text("a") == "Köln"
    for kind in (r'multipart/form-data; boundary="----edge\"; charset=\"punycode"', "multipart/form-data"):
        with pytest.raises(InvalidInputError, check=mentions("form")):
            read_form(body, kind)
    with pytest.raises(InvalidInputError, check=mentions("form")):
        read_form(b"&" * (FIELDS + 1), "application/x-www-form-urlencoded; boundary=x")
