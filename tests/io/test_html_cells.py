"""Visible text of HTML in cells, compared with expected texts and with BeautifulSoup's get_text."""

import pytest
from bs4 import BeautifulSoup

from contrastive_encoders.io.html_cells import has_tags, visible_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<p>Open the app.</p>\n<p>Log in.</p>", "Open the app.\nLog in."),
        ("one<br/>two<BR>three<br />four", "one\ntwo\nthree\nfour"),
        ("<ul><li>one<li>two</ul>", "one\ntwo"),
        ("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>", "a b\nc"),
        ('<DIV CLASS="x">a &amp; b&nbsp;c &#8217; &#x41;</DIV>', "a & b c ’ A"),
        ("see <a href='https://example.com/?a=1&b=2' target=_blank>the <b>help</b></a>.", "see the help."),
        ('<a href="x>y"title="t">link</a>', "link"),
        ("a<!-- <p>b</p> -->c", "ac"),
        ("<script>if (a < b) { x() }</script>seen<style type='text/css'>p {}</style>", "seen"),
        ("<!DOCTYPE html><p hidden>x</p>", "x"),
        ("<p>wrapped\n   source</p>", "wrapped source"),
        ("<p>1 &lt;b&gt; 2</p>", "1 <b> 2"),
        ("<p>a < b and List<String></p>", "a < b and List<String>"),
        ("<p>&nbsp;</p><br>", ""),
    ],
)
def test_tags_are_removed_and_blocks_are_lines(text, expected):
    assert visible_text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a < b",
        "if a <b and c> d",
        "x <- 3",
        "List<String>",
        "List<Object>",
        "Map<K, List<V>>",
        "<me@example.com>",
        "<https://example.com>",
        "<PLACEHOLDER>",
        "  two  blanks\nand a line ",
        "?a=1&copy=2",
        "AT&T; R&D",
        "Where does <script> go?",
        "<!-- open",
        "<p unclosed",
    ],
)
def test_a_text_without_tags_is_unchanged(text):
    assert not has_tags(text)
    assert visible_text(text) == text


def test_entities_without_tags_are_decoded():
    assert visible_text("Don&#8217;t  ask &lt;p&gt;") == "Don’t  ask <p>"


@pytest.mark.parametrize(
    "text",
    [
        "<div><h1>Title</h1><p>Some <em>text</em> with <code>code</code>.</p></div>",
        "<ol><li>First &eacute;</li><li>Second &mdash; <a href='#'>link</a></li></ol><hr><blockquote>Hm</blockquote>",
        "<p>Reset<!-- note --> it</p><script>var p = '<p>';</script><p style=\"color: red\">now</p>",
        "<table><tbody><tr><th scope=row>Name</th><td>Value</td></tr></tbody></table>",
    ],
)
def test_words_equal_those_of_beautiful_soup(text):
    soup = BeautifulSoup(text.replace("</p>", "</p> ").replace("</li>", "</li> "), "html.parser")
    for block in soup.find_all(["h1", "li", "p", "th", "td", "blockquote"]):
        block.append(" ")
    for unseen in soup.find_all(["script", "style"]):
        unseen.decompose()
    assert visible_text(text).split() == soup.get_text().split()
