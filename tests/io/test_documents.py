"""Documents of every format are read as text. The tests write small ones by other libraries or by the standards."""

import base64
import gzip
import io
import logging
import os
import pickle
import subprocess
import sys
import zipfile

import openpyxl
import pytest

from contrastive_encoders.io.documents import markdown_of
from contrastive_encoders.io.rows import DOCUMENT, count_rows, read_rows
from contrastive_encoders.io.text_files import BadRow

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
HEADING, BODY = "Grey seals", "A seal sleeps on the ice and wakes at noon."


def docx() -> bytes:
    """Write ECMA-376, part 1: a package of three parts, whose paragraph of style Heading1 is a heading."""
    styled = f'<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>{HEADING}</w:t></w:r></w:p>'
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" ContentType='
        '"application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/word/document.xml" '
        f'ContentType="{MAIN}"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" Type="{OFFICE}" '
        'Target="word/document.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{styled}<w:p><w:r><w:t>{BODY}</w:t></w:r></w:p>'
        "</w:body></w:document>",
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return made.getvalue()


def pdf(*lines: str) -> bytes:
    """Write ISO 32000-1, 7.5: one page of Helvetica."""
    drawn = f"BT /F1 12 Tf 72 720 Td 16 TL {' '.join(f'({line}) Tj T*' for line in lines)} ET"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        "/Resources << /Font << /F1 5 0 R >> >> >>",
        f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    made, places = "%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(made))
        made += f"{number} 0 obj\n{one}\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    begin = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    trailer = f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(made)}\n%%EOF\n"
    return (made + begin + trailer).encode()


def xlsx() -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = HEADING
    for row in (["what", "how", None], [BODY, 2, "x"], ["empty", 3, None]):
        sheet.append(row)
    made = io.BytesIO()
    book.save(made)
    return made.getvalue()


HTML = (
    f"<html><head><title>t</title><style>p {{}}</style></head><body><h1>{HEADING}</h1><p>A <b>seal</b> "
    '<a href="/x">sleeps</a> on the ice<br>and wakes at&nbsp;noon.</p><script>run()</script></body></html>'
)
TEXTS = {
    "a.html": (HTML.encode(), [HEADING, "A seal sleeps on the ice and wakes at noon."]),
    "a.htm": (HTML.encode(), [HEADING, "A seal sleeps on the ice and wakes at noon."]),
    "a.pdf": (pdf(HEADING, "", "A seal sleeps on the ice", "and wakes at noon."), [HEADING, BODY]),
    "a.docx": (docx(), [HEADING, BODY]),
    "a.xlsx": (xlsx(), [HEADING, f"what | how | {BODY} | 2 | x empty | 3 |"]),
    "a.md": (f"# {HEADING}\n\n{BODY}\n".encode(), [HEADING, BODY]),
    "a.markdown": (f"{HEADING}\n===\n\n{BODY}\n".encode(), [HEADING, BODY]),
}


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("name", TEXTS)
def test_a_document_is_one_row_with_its_visible_text(tmp_path, name, packed):
    data, blocks = TEXTS[name]
    path = tmp_path / f"{name}{packed}"
    path.write_bytes(gzip.compress(data) if packed else data)
    [row] = read_rows(path, form=DOCUMENT)
    assert not isinstance(row, BadRow), row.message
    assert [" ".join(block.split()) for block in row.values["text"].split("\n\n")] == blocks
    if not name.endswith(".xlsx"):  # a table, unless documents are read
        assert count_rows([path]) == 1


def test_a_document_is_converted_once_until_its_content_changes(tmp_path):
    """Another conversion of the same file would return another object."""
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf("The ferry crosses the wide river."))
    first, again = markdown_of(path), markdown_of(path)
    path.write_bytes(pdf("The train crosses the old bridge."))
    assert first is again
    assert "train" in markdown_of(path)


@pytest.mark.parametrize("name", ["a.docx", "a.html", "a.xlsx", "a.md"])
def test_headings_of_a_document_are_markdown_headings(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(TEXTS[name][0])
    assert str(markdown_of(path)).lstrip("# ").startswith(HEADING)
    assert str(markdown_of(path)).startswith("#")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cut.pdf", pdf("one line")[:200]),
        ("text.pdf", b"no document"),
        ("cut.docx", docx()[:-40]),
        ("cut.xlsx", xlsx()[:-40]),
        ("zip.xlsx", docx()[:4]),
    ],
)
def test_a_damaged_document_is_one_bad_row(tmp_path, name, data, caplog):
    path = tmp_path / name
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        [row] = read_rows(path, form=DOCUMENT)
    assert isinstance(row, BadRow)
    assert (row.line, row.fault) == (1, "malformed")
    assert f"{path.suffix} file (" in row.message
    assert "\n" not in row.message
    assert not caplog.records


SECRET = b"secret of this machine"
WATCHED = ("open", "socket.connect", "socket.getaddrinfo", "subprocess.Popen")


class Marks:
    """Object that makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_a_document_leaves_nothing_in_the_temporary_directory(tmp_path):
    (tmp_path / "a.docx").write_bytes(docx())
    (tmp_path / "temporary").mkdir()
    line = "import sys; from pathlib import Path; from contrastive_encoders.io.documents import markdown_of as read; "
    done = subprocess.run(
        [sys.executable, "-c", f"{line} print(read(Path(sys.argv[1])))", tmp_path / "a.docx"],
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert BODY in done.stdout
    assert not list((tmp_path / "temporary").iterdir())


def test_a_pdf_does_not_unpickle_a_file_that_it_names(tmp_path):
    """CVE-2025-64512: the name of an encoding was the path of a pickle."""
    with gzip.open(tmp_path / "evil.pickle.gz", "wb") as file:
        file.write(pickle.dumps(Marks(tmp_path / "ran")))
    named = str(tmp_path / "evil").replace("/", "#2F")
    font = b"/Subtype /Type1 /BaseFont /Helvetica"
    evil = f"/Subtype /Type0 /BaseFont /X /Encoding /{named} /DescendantFonts [<< /Type /Font /Subtype /CIDFontType2 "
    evil += "/BaseFont /X /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>]"
    path = tmp_path / "a.pdf"
    path.write_bytes(pdf(BODY).replace(font, evil.encode()))
    list(read_rows(path))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["a.docx", "a.html", "a.md"])
def test_a_linked_picture_is_not_read(tmp_path, name):
    """CVE-2025-11849: Word documents received the contents of local files that they name."""
    secret = tmp_path / "secret.png"
    secret.write_bytes(SECRET)
    events, enabled = list[str](), [True]
    sys.addaudithook(lambda event, args: events.append(f"{event} {args}") if enabled and event in WATCHED else None)
    tags = f'<img src="{secret.as_uri()}"><img src="http://127.0.0.1:9/x.png"><link rel="stylesheet" href="{secret}">'
    path = tmp_path / name
    path.write_bytes(linked(docx(), secret.as_uri()) if name == "a.docx" else f"{BODY}\n\n{tags}".encode())
    found = str(markdown_of(path))
    enabled.clear()  # a hook remains for the life of the process
    assert BODY in found
    assert base64.b64encode(SECRET).decode() not in found
    assert any(str(path) in event for event in events), "the hook is active"
    assert not [event for event in events if "secret" in event or "127.0.0.1" in event]


def linked(document: bytes, target: str) -> bytes:
    """Return a document with a picture that is a link."""
    drawing = "http://schemas.openxmlformats.org/drawingml/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    picture = (
        f'<w:p><w:r><w:drawing><wp:inline xmlns:wp="{drawing}/wordprocessingDrawing">'
        f'<a:graphic xmlns:a="{drawing}/main"><a:graphicData uri="{drawing}/picture">'
        f'<pic:pic xmlns:pic="{drawing}/picture"><pic:blipFill>'
        f'<a:blip xmlns:r="{office}" r:link="rId9"/></pic:blipFill></pic:pic></a:graphicData></a:graphic></wp:inline>'
        "</w:drawing></w:r></w:p>"
    )
    link = f'<Relationship Id="rId9" Type="{office}/image" Target="{target}" TargetMode="External"/>'
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(document)) as before, zipfile.ZipFile(made, "w") as after:
        for name in before.namelist():
            after.writestr(name, before.read(name).replace(b"</w:body>", f"{picture}</w:body>".encode()))
        after.writestr(
            "word/_rels/document.xml.rels", f'<Relationships xmlns="{PACKAGE}/relationships">{link}</Relationships>'
        )
    return made.getvalue()


def test_the_default_name_of_a_sheet_is_no_heading(tmp_path):
    for title in ("Sheet1", "Tabelle 2", "Prices"):
        book = openpyxl.Workbook()
        book.active.title = title
        book.active.append(["what", "how"])
        book.save(tmp_path / "a.xlsx")
        [row] = read_rows(tmp_path / "a.xlsx", form=DOCUMENT)
        assert (title in row.values["text"]) == (title == "Prices")
