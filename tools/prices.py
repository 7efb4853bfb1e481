#!/usr/bin/env python3
"""Adds the rows of a public table to the table of prices that tally comes with.

It is run by hand, from the root of the repository, with a copy of LiteLLM's table:

    curl -sO https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json
    python3 tools/prices.py --from 2026-12-01 --only '^(claude|gpt|gemini)-' \\
        cmd/internal/prices/builtin.json model_prices_and_context_window.json >new.json

A row is never altered: a price that differs from the newest row of its model is a new row
that holds from the given day on. Standard error lists what was added. Compare it with the
makers' pages, and correct from, source and checked, before new.json replaces the table;
go test ./cmd/internal/prices checks the result.
"""
import argparse
import datetime
import json
import re
import sys
from decimal import Decimal

SOURCE = "https://github.com/BerriAI/litellm/blob/main/model_prices_and_context_window.json"
MEMBERS = ["models", "from", "upTo", "speed", "input", "output", "cacheRead", "cacheWrite", "cacheWrite1h", "webSearch", "regions", "tiers", "source", "checked"]
PRICES = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cacheRead": "cache_read_input_token_cost",
    "cacheWrite": "cache_creation_input_token_cost",
    "cacheWrite1h": "cache_creation_input_token_cost_above_1hr",
}
DATED = re.compile(r"-(20\d{6}|20\d\d-\d\d-\d\d)$")


def is_chat(entry):
    return entry.get("litellm_provider") in ("anthropic", "openai", "gemini") and entry.get("mode") in ("chat", "responses")


def amount(per_token):
    """The price of a million, exactly, without zeros at its end."""
    text = format(Decimal(per_token) * 1_000_000, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def rows_of(model, entry, args):
    """The rows of a model: one, or one for each range of prompts."""
    bounds = [re.fullmatch(r"input_cost_per_token_above_(\d+)k_tokens", name) for name in entry]
    bound = max((int(m[1]) for m in bounds if m), default=0)
    rows = []
    for suffix in ["", f"_above_{bound}k_tokens"] if bound else [""]:
        row = {"models": [model], "from": args.start}
        if bound and not suffix:
            row["upTo"] = bound * 1000
        for member, name in PRICES.items():
            if entry.get(name + suffix) is not None:
                row[member] = amount(entry[name + suffix])
        row.update(source=SOURCE, checked=args.checked)
        if "input" in row and "output" in row:
            rows.append(row)
    return rows


def newest(table, model):
    """The rows of a model, at the standard speed, that begin last."""
    rows = [r for r in table if model in r["models"] and "speed" not in r]
    last = max((r.get("from", "") for r in rows), default="")
    return [r for r in rows if r.get("from", "") == last]


def same(have, public):
    """Whether rows have the same prices, as far as the public table says them."""
    def equal(h, p):
        return h.get("upTo", 0) == p.get("upTo", 0) and all(m not in p or m in h and Decimal(h[m]) == Decimal(p[m]) for m in PRICES)
    return len(have) == len(public) and all(any(equal(h, p) for h in have) for p in public)


def main():
    today = datetime.date.today().isoformat()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="start", default=today, help="the first day of new rows")
    parser.add_argument("--checked", default=today, help="the day on which the public table was read")
    parser.add_argument("--only", default="^(claude|gpt|gemini)-", help="add models whose name is like this regular expression alone")
    parser.add_argument("table")
    parser.add_argument("litellm")
    args = parser.parse_args()
    with open(args.table, encoding="utf-8") as f:
        table = json.load(f)["prices"]
    with open(args.litellm, encoding="utf-8") as f:
        public = json.load(f, parse_float=Decimal, parse_int=Decimal)
    for key in sorted(public):
        model = key.removeprefix("gemini/")
        if "/" in model or DATED.search(model) or not re.search(args.only, model) or not is_chat(public[key]):
            continue
        rows = rows_of(model, public[key], args)
        if rows and not same(newest(table, model), rows):
            table += rows
            for row in rows:
                print(f"{model}: {row}", file=sys.stderr)
    lines = ["  " + json.dumps({m: row[m] for m in MEMBERS if m in row}, ensure_ascii=False) for row in table]
    print('{"prices": [\n' + ",\n".join(lines) + "\n]}")


if __name__ == "__main__":
    main()
