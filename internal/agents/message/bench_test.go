package message_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/agents/message"
)

// Turns are read whenever they are shown or searched, even turns that were made to be slow. The time grows linearly
// with the size of a turn, not with its square.
func BenchmarkRead(b *testing.B) {
	var usual []string
	for _, e := range examples(b) {
		usual = append(usual, e.turn)
	}
	for name, list := range map[string][]string{
		"usual":   usual,
		"calls":   {content(`{"type":"tool_use","id":"c%d","name":"f","input":1}`)},
		"results": {content(`{"type":"tool_result","tool_use_id":"c%d","content":[{"type":"text","text":"t"}]}`)},
		"left":    {content(`{"type":"text","text":"t","note":"n%d"}`)},
		"deep":    {`{"role":"user","content":` + strings.Repeat(`[{"type":"tool_result","content":`, 300) + `"` + strings.Repeat("x y ", 1<<18) + `"` + strings.Repeat(`}]`, 300) + `}`},
	} {
		size := 0
		for _, turn := range list {
			size += len(turn)
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				for _, turn := range list {
					if _, ok := message.Read([]byte(turn)); !ok {
						b.Fatal(turn)
					}
				}
			}
		})
	}
}

// content returns a message with very many parts, each with its own number.
func content(part string) string {
	var list []string
	for i := range 20_000 {
		list = append(list, fmt.Sprintf(part, i))
	}
	return `{"role":"user","content":[` + strings.Join(list, ",") + `]}`
}
