package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"

	"github.com/tallylog/tally/internal/rawjson"
)

// ProgressMode is the way in which progress is shown.
type ProgressMode string

const (
	ProgressAuto  ProgressMode = "auto" // tty on a terminal, else plain
	ProgressTTY   ProgressMode = "tty"
	ProgressPlain ProgressMode = "plain"
	ProgressJSON  ProgressMode = "json"
	ProgressNone  ProgressMode = "none"
)

// Flag returns a flag for the mode.
func (m *ProgressMode) Flag() pflag.Value {
	return OneOf(m, "mode", ProgressAuto, ProgressTTY, ProgressPlain, ProgressJSON, ProgressNone)
}

// Progress prints progress on standard error once an operation has taken a second: a bar on a terminal, otherwise a
// line every ten seconds or ten percent. It is safe for concurrent use.
type Progress struct {
	w    io.Writer
	mode ProgressMode
	what string
	now  func() time.Time

	mu      sync.Mutex // guards the fields below
	begun   time.Time
	shown   time.Time
	percent int64
	bar     *progressbar.ProgressBar
}

// NewProgress starts the progress of an operation. what names it, such as "importing".
func NewProgress(w io.Writer, mode ProgressMode, what string) *Progress {
	if mode == ProgressAuto || mode == "" {
		mode = ProgressPlain
		if IsTerminal(w) {
			mode = ProgressTTY
		}
	}
	return &Progress{w: w, mode: mode, what: what, now: time.Now, begun: time.Now()}
}

// At sets how much of a total is done. A total below 1 is unknown. detail follows the numbers.
func (p *Progress) At(done, total int64, detail string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if p.mode == ProgressNone || now.Sub(p.begun) < time.Second {
		return
	}
	if p.mode == ProgressTTY {
		p.drawBar(now, done, total, detail)
		return
	}
	percent := int64(-1)
	if total > 0 {
		percent = done * 100 / total
	}
	if !p.shown.IsZero() && now.Sub(p.shown) < 10*time.Second && percent < p.percent+10 {
		return
	}
	p.shown, p.percent = now, percent
	if p.mode == ProgressJSON {
		p.line("status", done, total, detail)
		return
	}
	if percent >= 0 {
		fmt.Fprintf(p.w, "%s: %d%%, %s\n", p.what, percent, detail)
	} else {
		fmt.Fprintf(p.w, "%s: %s\n", p.what, detail)
	}
}

func (p *Progress) drawBar(now time.Time, done, total int64, detail string) {
	if p.bar == nil {
		if total < 1 {
			total = -1 // a spinner
		}
		p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(p.w), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(), progressbar.OptionSetElapsedTime(true), progressbar.OptionFullWidth(), progressbar.OptionSpinnerType(14))
	}
	if now.Sub(p.shown) < 100*time.Millisecond {
		return
	}
	p.shown = now
	p.bar.Describe(p.what + " " + detail)
	// The bar only draws: an error is one of the terminal.
	_ = p.bar.Set64(done)
}

func (p *Progress) line(kind string, done, total int64, detail string) {
	data, err := rawjson.Marshal(struct {
		Kind   string `json:"kind"`
		What   string `json:"what"`
		Done   int64  `json:"done"`
		Total  int64  `json:"total,omitempty"`
		Detail string `json:"detail"`
	}{kind, p.what, done, total, detail})
	if err == nil {
		fmt.Fprintf(p.w, "%s\n", data)
	}
}

// Done removes the bar. In mode json it writes the summary line.
func (p *Progress) Done(done int64, detail string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Finish()
	}
	if p.mode == ProgressJSON {
		p.line("summary", done, done, detail)
	}
}
