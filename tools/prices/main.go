// The command prices adds the rows of a public table to the table of prices that tally comes
// with. It is run by hand, from the root of the repository, with a copy of LiteLLM's table:
//
//	curl -sO https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json
//	go run tools/prices/main.go -from 2026-12-01 -only '^(claude|gpt|gemini)-' \
//		internal/prices/builtin.json model_prices_and_context_window.json >new.json
//
// A row is never altered: a price that differs from the newest row of its model is a new row
// that holds from the given day on. Standard error lists what was added. Compare it with the
// makers' pages, and correct from, source and checked, before new.json replaces the table;
// go test ./internal/prices checks the result.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/big"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const source = "https://github.com/BerriAI/litellm/blob/main/model_prices_and_context_window.json"

// row is a row of tally's table, with the members in their order.
type row struct {
	Models       []string          `json:"models"`
	From         string            `json:"from,omitempty"`
	UpTo         int64             `json:"upTo,omitempty"`
	Speed        string            `json:"speed,omitempty"`
	Input        string            `json:"input"`
	Output       string            `json:"output"`
	CacheRead    string            `json:"cacheRead,omitempty"`
	CacheWrite   string            `json:"cacheWrite,omitempty"`
	CacheWrite1h string            `json:"cacheWrite1h,omitempty"`
	WebSearch    string            `json:"webSearch,omitempty"`
	Regions      map[string]string `json:"regions,omitempty"`
	Tiers        map[string]string `json:"tiers,omitempty"`
	Source       string            `json:"source,omitempty"`
	Checked      string            `json:"checked,omitempty"`
}

var (
	from    = flag.String("from", time.Now().Format(time.DateOnly), "the first day of new rows")
	checked = flag.String("checked", time.Now().Format(time.DateOnly), "the day on which the public table was read")
	only    = flag.String("only", "^(claude|gpt|gemini)-", "add models whose name is like this regular expression alone")
	dated   = regexp.MustCompile(`-(20[0-9]{6}|20[0-9]{2}-[0-9]{2}-[0-9]{2})$`)
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	if flag.NArg() != 2 {
		log.Fatal("usage: prices [flags] TABLE LITELLM")
	}
	var table struct{ Prices []row }
	read(flag.Arg(0), &table)
	var public map[string]map[string]any
	read(flag.Arg(1), &public)
	wanted := regexp.MustCompile(*only)
	for _, key := range sorted(public) {
		entry := public[key]
		model := strings.TrimPrefix(key, "gemini/")
		if !wanted.MatchString(model) || strings.Contains(model, "/") || dated.MatchString(model) || !isChat(entry) {
			continue
		}
		rows := rowsOf(model, entry)
		if len(rows) == 0 || same(newest(table.Prices, model), rows) {
			continue
		}
		for _, r := range rows {
			fmt.Fprintf(os.Stderr, "%s: input %s, output %s, cache %s / %s / %s, up to %d\n", model, r.Input, r.Output, r.CacheRead, r.CacheWrite, r.CacheWrite1h, r.UpTo)
		}
		table.Prices = append(table.Prices, rows...)
	}
	write(table.Prices)
}

func isChat(entry map[string]any) bool {
	provider, mode := entry["litellm_provider"], entry["mode"]
	return (provider == "anthropic" || provider == "openai" || provider == "gemini") && (mode == "chat" || mode == "responses")
}

// rowsOf returns the rows of a model: one, or one for each range of prompts.
func rowsOf(model string, entry map[string]any) (rows []row) {
	bound := int64(0)
	for name := range entry {
		if k, ok := strings.CutPrefix(name, "input_cost_per_token_above_"); ok {
			if n, err := strconv.ParseInt(strings.TrimSuffix(k, "k_tokens"), 10, 64); err == nil {
				bound = n * 1000
			}
		}
	}
	suffixes := []string{""}
	if bound > 0 {
		suffixes = append(suffixes, fmt.Sprintf("_above_%dk_tokens", bound/1000))
	}
	for i, suffix := range suffixes {
		price := func(name string) string { return perMillion(entry[name+suffix]) }
		r := row{Models: []string{model}, From: *from, Input: price("input_cost_per_token"), Output: price("output_cost_per_token"),
			CacheRead: price("cache_read_input_token_cost"), CacheWrite: price("cache_creation_input_token_cost"),
			CacheWrite1h: perMillion(entry["cache_creation_input_token_cost_above_1hr"+suffix]), Source: source, Checked: *checked}
		if i == 0 {
			r.UpTo = bound
		}
		if r.Input != "" && r.Output != "" {
			rows = append(rows, r)
		}
	}
	return rows
}

// perMillion is a price of a token as one of a million, exactly; "" if there is none.
func perMillion(v any) string {
	n, ok := v.(json.Number)
	if !ok {
		return ""
	}
	r, ok := new(big.Rat).SetString(n.String())
	if !ok {
		return ""
	}
	r.Mul(r, big.NewRat(1_000_000, 1))
	places, ok := r.FloatPrec()
	if !ok || r.Sign() < 0 {
		return ""
	}
	return r.FloatString(places)
}

// newest returns the rows of a model, at the standard speed, that begin last.
func newest(table []row, model string) (rows []row) {
	for _, r := range table {
		if !slices.Contains(r.Models, model) || r.Speed != "" {
			continue
		}
		if len(rows) > 0 && r.From > rows[0].From {
			rows = nil
		}
		if len(rows) == 0 || r.From == rows[0].From {
			rows = append(rows, r)
		}
	}
	return rows
}

// same reports whether rows have the same prices, as far as the public table says them.
func same(have, public []row) bool {
	if len(have) != len(public) {
		return false
	}
	for _, p := range public {
		if !slices.ContainsFunc(have, func(h row) bool {
			return h.UpTo == p.UpTo && equal(h.Input, p.Input) && equal(h.Output, p.Output) && equal(h.CacheRead, p.CacheRead) &&
				equal(h.CacheWrite, p.CacheWrite) && equal(h.CacheWrite1h, p.CacheWrite1h)
		}) {
			return false
		}
	}
	return true
}

// equal compares amounts by value; what the public table leaves out is equal to anything.
func equal(have, public string) bool {
	if public == "" {
		return true
	}
	a, ok := new(big.Rat).SetString(have)
	b, _ := new(big.Rat).SetString(public)
	return ok && a.Cmp(b) == 0
}

func sorted(m map[string]map[string]any) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func read(path string, into any) {
	data, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		log.Fatalf("%s: %v", path, err)
	}
}

// write prints the table, with a line for each row.
func write(rows []row) {
	fmt.Println(`{"prices": [`)
	for i, r := range rows {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(r); err != nil {
			log.Fatal(err)
		}
		line := strings.TrimSpace(b.String())
		if i < len(rows)-1 {
			line += ","
		}
		fmt.Println("  " + spaced(line))
	}
	fmt.Println("]}")
}

// spaced puts a space behind each colon and comma that is not in a text.
func spaced(line string) string {
	var b strings.Builder
	in := false
	for i := 0; i < len(line); i++ {
		b.WriteByte(line[i])
		switch c := line[i]; {
		case c == '"' && (i == 0 || line[i-1] != '\\'):
			in = !in
		case (c == ':' || c == ',') && !in && i < len(line)-1:
			b.WriteByte(' ')
		}
	}
	return b.String()
}
