"""Each rule of protected text by examples: what it finds, and what looks alike and is text to translate."""

import re
from functools import cache

import pytest

from mtcli.text.placeholders import TOKENS, find_protected
from mtcli.text.protected_rules import RULES
from mtcli.text.rule import Rule, Start

DECIMALS = {"number with spaces"}
"""Rules of numbers that are protected only between languages that write decimals and groups alike."""
EXAMPLES: dict[str, tuple[list[str], list[str]]] = {
    # ---- addresses that begin with a letter ----
    "address of a known scheme": (
        ["Call ⟦tel:+49301234⟧, please.", "(⟦urn:isbn:0451450523⟧)", "⟦data:text/plain,a⟧ and ⟦doi:10.1000/182⟧."],
        ["The data: one and two.", "https: the scheme", "Our file:", "metadata:one"],
    ),
    "address of any scheme": (
        ["Open ⟦myapp://open/1⟧ now.", "⟦chrome-extension://abc/x.htm⟧,"],
        ["and:// then", "one: //two", "myapp://"],
    ),
    "address after www": (
        ["Go to ⟦www.example.travel⟧.", "⟦www.a-b.co#c⟧, he said"],
        ["the www is old", "www. is short"],
    ),
    "e-mail address": (
        ["Write to ⟦me@example.org⟧.", "⟦4you@example.org⟧", "⟦mailto:a@b.co?subject=x⟧", "⟦git@github.com:a/b.git⟧"],
        ["me @ home", "two @ a time", "an at-sign, a@b", "me@example."],
    ),
    "path on a drive": (["in ⟦C:/Users/me⟧.", "⟦d:/x⟧ is full"], ["a: b", "either A:B", "Class C:/ it is"]),
    "path of Windows on a drive": (
        ["⟦C:\\Users\\Me\\x.txt⟧ is lost.", "Open ⟦C:\\Program Files\\App\\a.exe⟧."],
        ["Class C: one", "Plan B:", "A: \\ and B: /"],
    ),
    # ---- tags that are written as text ----
    "tag": (
        ["a ⟦<b>⟧bold⟦</b>⟧ word", 'See ⟦<a title="Hi. You, there">⟧this⟦</a>⟧.'],
        ["3 < 5 > 2", "a < b", "if x<y", "1 < 2 and 4 > 3"],
    ),
    "tag with a number": (["Read ⟦<0>⟧this⟦</0>⟧.", "a⟦<12/>⟧b"], ["1 <5 and > 3", "a <1 2> b", "fewer than <10"]),
    "comment of HTML": (["a ⟦<!-- one two -->⟧ b", "⟦<!--TODO-->⟧"], ["a <! b", "<!-- an open one"]),
    # ---- paths ----
    "path after a variable": (
        ["in ⟦$HOME/bin⟧.", "⟦${HOME}/bin/x⟧ exists"],
        ["ten $ / month", "a HOME/bin"],
    ),
    "network path": (["on ⟦\\\\server\\share⟧.", "⟦\\\\nas-1\\C$\\x⟧"], ["a \\ b", "one / two \\ three"]),
    "path after a variable of Windows": (
        ["in ⟦%APPDATA%\\foo⟧.", "⟦%TEMP%\\a\\b.tmp⟧ is full"],
        ["5 \\ 6", "% TEMP %\\", "five % \\ six"],
    ),
    "path": (
        ["in ⟦/usr/local/bin⟧.", "⟦/etc/a.d/⟧ and ⟦/opt/*⟧"],
        ["and/or/not", "she /he", "km/h", "a / b / c"],
    ),
    "relative path": (
        ["run ⟦./a⟧.", "in ⟦~/docs/x.txt⟧ or ⟦../yes⟧"],
        ["wait.../no", "and.../or", "a ./ b", "one / two"],
    ),
    "path of a page": (
        ["at ⟦/#!Home⟧.", "⟦/search?q=x&p=2⟧ failed"],
        ["and/or?", "Mr /Mrs?", "one /two #", "he/she#x"],
    ),
    # ---- templates ----
    "three braces": (["Dear ⟦{{{name}}}⟧!", "⟦{{{ a b }}}⟧"], ["{{{ open", "a }}} b"]),
    "two braces": (["Dear ⟦#{{ first name }}⟧!", "⟦${{ a.b == 'c' }}⟧ or ⟦{{ x }}⟧"], ["{{ open", "a }} b"]),
    "two braces around others": (
        ['⟦{{ a | default("{}") }}⟧ b', "⟦{{ {a: 1}.a }}⟧"],
        ["{{ open { two", "}} two {{"],
    ),
    "statement of a template": (
        ["⟦{% trans 'x, y' %}⟧ and ⟦{% endif %}⟧", "⟦{%- if a < b -%}⟧yes"],
        ["{% open", "{ five % }", "two %} three"],
    ),
    "comment of a template": (["a ⟦{# note, x #}⟧ b", "⟦{# {x} #}⟧"], ["{# open", "two #}"]),
    "tag of a template": (["a ⟦<%= a < b %>⟧ b", "⟦<%# note %>⟧"], ["x <% y", "five %> six"]),
    "tag of PHP": (["a ⟦<?php echo 1 ?>⟧ b", "⟦<?= $x > 1 ?>⟧"], ["what <? no", "no ?> yes"]),
    "style of subtitles": (["⟦{\\i1}⟧Hello⟦{\\i0}⟧", "⟦{\\an8\\b1}⟧Up here"], ["{ \\ }", "{/i/}"]),
    # ---- fields in braces ----
    "message of ICU": (
        [
            "Delete ⟦{count, plural, =0 {none} one {{count} file} other {# files}}⟧.",
            "⟦{0, number, integer}⟧ of ⟦{d,date}⟧",
        ],
        ["{one, two three}", "{a, b; c}", "{one, 2 and 3}"],
    ),
    "field": (
        [
            "Dear ⟦{name}⟧,",
            "⟦{}⟧ or ⟦{0:.2f}⟧ or ⟦${x:-y}⟧",
            "⟦%{count}⟧ and ⟦#{a.b[0]}⟧ and ⟦@{x}⟧",
            "⟦{Name?Default}⟧",
        ],
        ["{two words}", "{ open", "a } b", "{a b}", "{one; two}"],
    ),
    # ---- conversions after a sign of percent ----
    "conversion with a name": (["⟦%(name)s⟧ left.", "⟦%(n)03d⟧ files"], ["50 %(or more)", "% (name)s", "%()s"]),
    "conversion": (
        [
            "⟦%s⟧ has ⟦%1$s⟧.",
            "⟦%-5.2f⟧ or ⟦%.*s⟧",
            "⟦%@⟧ and ⟦%ld⟧px",
            "a⟦%d⟧b",
            "⟦%ld⟧⟦%%⟧",
            "⟦%s⟧_⟦%s⟧ or ⟦%d⟧x⟦%d⟧",
            "page 1 ⟦%s⟧.",
        ],
        ["eine 30%ige Lösung", "many % do", "% s", "eine 30 %ige Lösung"],
    ),
    "conversion with a macro": (["⟦%<PRIu64>⟧ bytes", "a ⟦%08<PRIx32>⟧."], ["% <PRI", "<PRIu64"]),
    # ---- other names ----
    "number between X": (["a⟦[X11X]⟧b", "⟦[X1X]⟧ is here"], ["[X]", "[XX]", "[X one X]"]),
    "conversion of Windows": (["⟦%1!s!⟧ failed", "a ⟦%12!lu!⟧."], ["% 1!s!", "a 1!s!"]),
    "variable in parentheses": (["in ⟦$(VAR)⟧.", "⟦$(a.b)⟧"], ["US$ (VAR)", "$ (5)", "$()"]),
    "interpolation of Swift": (["Hi ⟦\\(name)⟧!", "⟦\\(user.name)⟧"], ["\\ (name)", "\\()", "\\(two words)"]),
    "name between underscores": (["the ⟦__init__⟧ method", "⟦__NAME__⟧,"], ["one__two", "snake__case", "__init"]),
    "name after @": (
        ["thanks to ⟦@ana.bob⟧!", "⟦@the_one⟧, hello", "(⟦@types-node⟧)"],
        ["@ home", "a@b", "@1 o'clock", "at @ a time"],
    ),
    "tag after #": (
        ["a ⟦#sunset⟧, see", "⟦#sun#sea⟧", "⟦#20jahre⟧"],
        ["C# is", "# one", "sun#sea", "the # of cats"],
    ),
    "option": (["run ⟦--all⟧.", "with ⟦--dry-run⟧, now"], ["I -- you", "word--word", "--Word", "--1"]),
    "name between @": (["is ⟦@VERSION@⟧.", "⟦@PACKAGE_NAME@⟧"], ["a @ B @", "@ VERSION @", "A@B@C"]),
    # ---- more conversions ----
    "conversion of Go": (["⟦%[2]d⟧ of ⟦%[1]d⟧", "⟦%[1]-5s⟧"], ["five %[2]", "%[a]d", "% [2]"]),
    "argument of Qt": (["Open ⟦%1⟧.", "⟦%L1⟧ of ⟦%12⟧ files", "⟦%2⟧"], ["% 1", "one% 2", "per cent 2"]),
    # ---- emoji ----
    "flag": (["one⟦🇩🇪⟧two", "to⟦🇩🇪⟧⟦🇫🇷⟧"], ["DE FR", "the DE"]),
    "key": (["press ⟦1️⃣⟧ now", "⟦#️⃣⟧ or ⟦*️⃣⟧"], ["press 1 now", "# or *."]),
    "emoji": (["one⟦👍🏽⟧ two", "one⟦👨‍👩‍👧⟧"], ["hi \u200d there", "a \ufe0f b", "〇 one"]),
    "sign as an emoji": (["wow ⟦‼️⟧", "⟦⁉️⟧ what", "see ⟦ℹ️⟧ here"], ["wow ‼ now", "what⁉"]),
    # ---- smileys ----
    "smiley": (
        ["hi ⟦:-)⟧", "(hi ⟦;P⟧)", "no ⟦:'(⟧.", "⟦>:(⟧ no", "⟦:]⟧"],
        ["Note: (a)", "he said: D", "the ratio (a:b)", "at: Dogs"],
    ),
    "smiley before a word": (["⟦:-)⟧one two", "well ⟦:)⟧one"], ["a:(b) c", "f(a:)b", "a:]b"]),
    "smiley after a word": (["one two⟦:)⟧", "two⟦:-D⟧!", "one⟦;-)⟧."], ["(two:)one", "one:Dog", "a:P b"]),
    "smiley from the right": (
        ["hi ⟦(-:⟧ you", "⟦(;⟧ you", "⟦(:⟧ hi", "⟦]-:⟧ hi"],
        ["(a): b", "[one]: a", "x(-:", "(= one)", "one ]: two", "one ]; two"],
    ),
    "heart": (["I ⟦<3⟧ you", "no,⟦</3⟧.", "⟦<333⟧"], ["5<3", "< 3", "x<3"]),
    "face in parentheses": (["hi ⟦(^_^)⟧!", "⟦(T_T)⟧ no", "⟦(><)⟧"], ["(a_)", "(^)", "(a)"]),
    "face": (["(hi) „⟦^^⟧“", "hi,⟦-_-⟧", "no…⟦>.<⟧"], ["x^^y", "a-_-b", "> . <"]),
    "arrow to the right": (["a ⟦->⟧ b", "a⟦=>⟧ b", "⟦<->⟧ both"], ["a - > b", "a ->b", "a > b"]),
    "arrow to the left": (["a⟦<-⟧ b", "a⟦<==⟧ b"], ["x<-1", "a < - b", "a <-b"]),
    "smiley with B": (["cool ⟦B-)⟧", "⟦B-D⟧!"], ["Plan B)", "vitamin B-", "(plan B-1)"]),
    "smiley with x": (["lol ⟦xD⟧", "⟦XDDD⟧!"], ["xDrive", "an X", "axD"]),
    "face of letters": (["no ⟦T__T⟧", "⟦o__O⟧!"], ["T T", "a To", "T__"]),
    "bear": (["a ⟦ʕ•ᴥ•ʔ⟧", "⟦ʕ·ᴥ·ʔ⟧!"], ["ʕ and ʔ", "the sound ʕ"]),
    "number in a circle": (["see ⟦①⟧ and ⟦⓿⟧", "⟦❶⟧one"], ["see 1", "x①"]),
    "smiley with 8": (["cool ⟦8-)⟧", "⟦8D⟧!", "⟦8-D⟧ no"], ["18)", "8 )", "a8)", "(page 8)", "[8] one", "8) Go on"]),
    # ---- other signs ----
    "word of signs": (
        ["well ⟦¯\\_(ツ)_/¯⟧", "name: ⟦____⟧.", "⟦***⟧ one", "a ⟦++⟧ b", "one ⟦+_+⟧ two"],
        ["well ...", "wait?!", "(...)", "and - or", "C++", '"..."', "pe +k+ ne", "¡m+k+ neukau", "-+t+a."],
    ),
    "sign": (["⟦©⟧ us", "one⟦™⟧ two", "one ⟦→⟧ two", "⟦†⟧"], ["a ~b", "ª one", "№ 5", "ℓ one"]),
    "sign without its number": (["a ⟦×⟧ b", "the ⟦§⟧ is", "in ⟦€⟧."], ["§ 5", "5 × 3", "3×", "№5", "5 €uro"]),
    "mark between spaces": (["one ⟦|⟧ two", "⟦*⟧ one", "a ⟦~⟧ b"], ["5 * 3", "a b*c", "~ 5", "one| two"]),
    "beginning of emphasis": (["so ⟦*⟧good", "⟦**⟧so good"], ["a*b", "2*3", "x**2"]),
    "end of emphasis": (["good⟦*⟧ one", "so good!⟦**⟧ one"], ["a*b", "5* hotel", "f(x)*2"]),
    # ---- other marks of programs ----
    "two signs of percent": (["at ⟦%d⟧⟦%%⟧", "⟦%%⟧ is one"], ["a % % b", "% one"]),
    "name between percent": (
        ["the ⟦%USER%⟧ is", "in ⟦%WINDIR%⟧.", "to ⟦%EMAIL%⟧ or ⟦%APPDATA%⟧", "⟦%count%⟧ of ⟦%user_name%⟧."],
        ["% USER %", "5 %USER", "%Ü%", "fifty% or %"],
    ),
    "letter after percent": (["⟦%H⟧:⟦%M⟧ now", "⟦%-y⟧.", "⟦%m⟧ failed"], ["5 %m", "5%H", "%mann", "50 %H"]),
    "variable": (["by ⟦$x⟧.", "⟦$NAME$⟧ is", "⟦$user_name⟧'s"], ["ten $ a", "a $ b", "$ x"]),
    # ---- code ----
    "code between two backticks": (
        ["run ⟦``a 'b' c``⟧ now", "⟦:code:``x``⟧."],
        ["``one'' or ``two''", "``one", "a ``b"],
    ),
    "code between backticks": (
        ["run ⟦`npm run build`⟧.", "see ⟦:ref:`the title <x>`⟧", "⟦:py:func:`f`⟧,"],
        ["`foo' or `bar'", "a ` b ` c", "the letter `a"],
    ),
    "name after a colon": (
        ["the ⟦:user_name⟧ field", "⟦:smile:⟧ hi"],
        ["note:one", "one: two", "(a):bc", ":a", "yes : no"],
    ),
    "tag of BBCode": (
        [
            "⟦[b]⟧bold⟦[/b]⟧",
            "⟦[url=https://a.b/c?d]⟧x⟦[/URL]⟧",
            "⟦[*]⟧ one",
            "⟦[u]⟧under⟦[/u]⟧",
            "⟦[I]⟧One",
            "⟦[b]⟧ one",
        ],
        ["[x]", "[bold]", "[a, b]", "[ b ]", "colo[u]r and d[i]e", "[i]n [u]nd"],
    ),
    "escape": (["one⟦\\n⟧ two", "⟦\\t⟧ or ⟦\\d⟧", "⟦\\n⟧Next"], ["one \\ two", "a \\1", "\\Ä"]),
    "command of TeX": (["the ⟦\\alpha⟧ is", "⟦\\section*⟧ one"], ["\\ alpha", "one/two\\", "\\é"]),
    "character reference": (["a⟦&nbsp;⟧b", "⟦&#8217;⟧ and ⟦&#x2019;⟧"], ["R&B;", "a & b;", "&one two;", "& amp;"]),
    "placeholder token": ([f"a ⟦{TOKENS[0]}⟧ b", f"⟦{TOKENS[9]}⟧⟦{TOKENS[4]}⟧"], ["a \U0010fff0 b", "a \ue000 b"]),
    "function": (["call ⟦main()⟧.", "⟦str_of()⟧ is"], ["main ()", "main(a)", "the () of", "5()"]),
    "identifier": (
        ["the ⟦foo_bar⟧.", "⟦MAX_LEN_2⟧ is", "the ⟦logged_in⟧", "⟦Last_Logged_in⟧"],
        ["foo-bar", "foo _bar", "foo__bar", "été_x", "eine Flugbegleiter_in", "alle Lehrer_innen sind"],
    ),
    "file or host": (
        ["in ⟦report.pdf⟧.", "⟦7z.exe⟧ or ⟦_config.yml⟧", "on ⟦github.com⟧,", "⟦page.aspx?ID=5⟧"],
        ["the end.Next one", "wait...what", "U.S.A.", "Ph.D.", "casa.es", "pdf. Next"],
    ),
    "host before a path": (
        ["at ⟦youtu.be/abc⟧.", "⟦9gag.st/a/b⟧", "⟦-a.xy/z⟧"],
        ["youtu.be / abc", "and.or", "Mr.X/Mrs.Y", "s.o/he"],
    ),
    # ---- amounts and measures ----
    "amount after a sign with letters": (["for ⟦US$5⟧.", "⟦A$ 20⟧ or ⟦NZ$1,000.50⟧"], ["US dollars", "US$ and", "us$"]),
    "amount after a code": (["for ⟦EUR 20⟧.", "⟦JPY 1,000⟧ is"], ["EUR are", "the EUR20", "EURO 20"]),
    "number with a unit": (
        [
            "it is ⟦3.5 km⟧ long",
            "⟦-5 °C⟧ or ⟦20-30%⟧",
            "⟦5 €⟧",
            "⟦5 GB⟧.",
            "it is ⟦5\u00a0ha⟧ or ⟦2em⟧ or ⟦40 s⟧ or ⟦1.5s⟧",
            "⟦20 min⟧ and ⟦2500 m⟧",
            "⟦5km⟧的路",
        ],
        [
            "5 miles",
            "in the 1980s",
            "5 cats",
            "5 m(x)",
            "a 5",
            "El año 11 ha sido",
            "En 30 l'équipe et 20 m’a",
            "a las 5 mi madre",
            "4 em cada 5",
            "in the 80s",
            "30ha ára",
        ],
    ),
    "amount after a sign": (["for ⟦$5⟧.", "⟦-€ 20⟧ or ⟦£1,000.50⟧"], ["$ five", "€uro"]),
    # ---- what machines are called by ----
    "IPv6 or hardware address": (
        ["at ⟦2001:db8::1⟧.", "⟦::1⟧ is", "⟦fe80::1/64⟧", "⟦00:1A:2B:3C:4D:5E⟧", "⟦fe80:0:0:0:1:2:3:4/64⟧"],
        ["a::", "std::g", "a :: b", "be:ad", "face: a: b"],
    ),
    "UUID": (
        ["id ⟦550e8400-e29b-41d4-a716-446655440000⟧.", "⟦abcdef01-e29b-41d4-a716-446655440000⟧"],
        ["deadbeef-face-face-face", "deadbeef-dead"],
    ),
    "hash": (["at ⟦3f2a9c1⟧.", "⟦deadbee1⟧ is"], ["deadbeef", "facade", "3f2a9c", "3f2a9cg"]),
    "hash in capitals": (["at ⟦3F2A9C1⟧.", "⟦ABCDEF1⟧ is"], ["FACADED", "3F2A9C", "3F2A9Cg"]),
    "hardware address with hyphens": (
        ["at ⟦00-1A-2B-3C-4D-5E⟧.", "⟦aa-bb-cc-dd-ee-f0⟧"],
        ["be-ad-be", "aa-bb-cc-dd-ee-ff-gg"],
    ),
    "IBAN": (["to ⟦DE89 3704 0044 0532 0130 00⟧.", "⟦GB29 NWBK 6016 1331 9268 19⟧"], ["DE89", "AB12 and", "DE89 one"]),
    "code of capitals and digits": (
        ["is ⟦SKU-12345⟧.", "⟦CVE-2024-12345⟧ or ⟦A320B4⟧"],
        ["an MP3", "COVID-19", "B2B", "Sku-12", "ABC-DEF"],
    ),
    # ---- versions and fractions ----
    "version after v": (["is ⟦v2.1⟧.", "⟦v2⟧ or ⟦v1.0-rc.1⟧"], ["v. two", "a v", "vii", "v2x"]),
    "version with a build": (["is ⟦2.0.0-rc.1+build.5f8⟧.", "⟦v1.2.3+4⟧ is"], ["2+x", "v+1", "a+b"]),
    "fraction": (["is ⟦½⟧ of", "⟦1½⟧ cups"], ["½x", "one half", "x½"]),
    # ---- dates and times ----
    "date with a time": (
        ["at ⟦2024-12-25T10:00:00+01:00⟧.", "⟦2024-12-25 10:00⟧ is"],
        ["T10 is", "12 10 00"],
    ),
    "time": (
        ["at ⟦10:30 CET⟧.", "⟦3:30 pm⟧ or ⟦10:00 p.m.⟧", "⟦18:00 GMT+2⟧"],
        ["a 3: one", "3 pm", "chapter 3:", "3 : 30"],
    ),
    "week": (["in ⟦2024-W52⟧.", "⟦2024-W52-1⟧ is"], ["W52", "24-W52", "-W5"]),
    # ---- other numbers with letters ----
    "version before a release": (
        ["is ⟦1.2.0rc1⟧.", "⟦1.0.0-beta⟧ or ⟦3.12.0a2⟧", "⟦1.0-beta⟧ and ⟦2.5-rc.1⟧"],
        ["1 beta", "1beta", "the beta", "1.0-best"],
    ),
    "card number": (["is ⟦4111 1111 1111 1111⟧.", "⟦1234 5678 9012⟧ is"], ["1 2 3 4", "12 34 56"]),
    "number in another base": (["is ⟦0x7fff⟧.", "⟦0b101⟧ or ⟦0o755⟧"], ["0xyz", "0b2", "0x"]),
    "lines of a video": (["in ⟦1080p⟧.", "⟦720p⟧ or ⟦576i⟧"], ["5p", "1080px2", "10i"]),
    "number after #": (["see ⟦#123⟧.", "⟦#1⟧ is", "颜色⟦#ff8800⟧"], ["# 1", "C#1", "#-1"]),
    # ---- telephone numbers ----
    "international telephone number": (["call ⟦+49 30 123456⟧.", "⟦+49 (0)30 1234-5678⟧"], ["+ 49", "a + b", "1+1"]),
    "telephone number with parentheses": (["call ⟦(555) 123-4567⟧.", "⟦(030)123456⟧"], ["(5) 12", "(55) and", "(12)"]),
    "telephone number with 0": (["call ⟦030 123 456⟧.", "⟦0171 2345-67⟧ is"], ["0 1", "30 12", "10 00"]),
    # ---- all other numbers ----
    "power of ten": (["is ⟦6e23⟧.", "⟦-1E+5⟧ is"], ["1e", "e23", "1 e 5"]),
    "number with spaces": (["is ⟦1 000⟧.", "⟦-12 345⟧ is"], ["1 00", "10 00", "0 12"]),
    "number": (
        ["in ⟦2024⟧.", "⟦-5⟧ or ⟦12/25/2024⟧", "⟦2019–2021⟧", "⟦16:9⟧ or ⟦192.168.0.1⟧", "⟦2024⟧年"],
        ["12 cats", "3.14159", "1,234", "1980s", "21st", "5-year-old", "MP3"],
    ),
}
"""Of each rule: lines in which exactly what is between ⟦ and ⟧ is protected, and lines in which nothing is."""
PARTS = re.compile("⟦(.*?)⟧")


def unmarked(line: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a line without its marks, and the spans that were between them."""
    spans = []
    text = ""
    for number, part in enumerate(PARTS.split(line)):
        if number % 2 == 1:
            spans.append((len(text), len(text) + len(part)))
        text += part
    return text, spans


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def first_two(text: str, start: int) -> list[tuple[str, int]]:
    """Return the first rule that matches at a place with the end of its match, and the same of the next one."""
    found = []
    for rule in RULES:
        match = compiled(rule.pattern).match(text, start)
        if match and any(compiled(each.value).match(text, start) for each in rule.starts):
            found.append((rule.name, match.end()))
    return found[:2]


def is_needed(rule: Rule, text: str, span: tuple[int, int]) -> bool:
    """Return True if a rule finds a span that would not be found without this rule."""
    start, end = span
    winner, *next_one = first_two(text, start)
    return winner == (rule.name, end) and end not in [other for _, other in next_one]


def test_every_rule_has_examples() -> None:
    assert [rule.name for rule in RULES if rule.name not in EXAMPLES] == []
    assert sorted(EXAMPLES) == sorted(rule.name for rule in RULES)
    assert {name for name, (found, _) in EXAMPLES.items() if len(found) < 2} == set()
    assert {name for name, (_, others) in EXAMPLES.items() if len(others) < 2} == set()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_finds_its_examples(rule: Rule) -> None:
    """At least one span of each line is found by this rule alone, and one for each character where it may begin."""
    starts: set[Start] = set()
    for line in EXAMPLES[rule.name][0]:
        text, spans = unmarked(line)
        assert find_protected(text, decimals=rule.name in DECIMALS) == spans, line
        own = [span for span in spans if is_needed(rule, text, span)]
        assert own, line
        starts.update(each for each in rule.starts for start, _ in own if compiled(each.value).match(text, start))
    assert starts == {*rule.starts}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_text_that_looks_like_examples_of_a_rule_is_translated(rule: Rule) -> None:
    for line in EXAMPLES[rule.name][1]:
        found = [line[start:end] for start, end in find_protected(line)]
        assert found == [], line
