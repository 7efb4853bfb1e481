package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// bridge passes the server's log lines to slog. What the server takes for fatal is
// an error of Start, never the end of the process.
type bridge struct {
	logger *slog.Logger
	fatal  chan error
	heard  func(text string) // of every error and notice

	mu   sync.Mutex // guards said
	said []string   // the first warnings and errors
}

const mostComplaints = 8

func newBridge(lg *slog.Logger, heard func(string)) *bridge {
	return &bridge{logger: lg.With("component", "nats-server"), heard: heard, fatal: make(chan error, 1)}
}

func (b *bridge) complain(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.said) < mostComplaints {
		b.said = append(b.said, text)
	}
}

func (b *bridge) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.said)
}

func (b *bridge) Debugf(format string, v ...any) { b.logger.Debug(fmt.Sprintf(format, v...)) }
func (b *bridge) Tracef(format string, v ...any) { b.logger.Debug(fmt.Sprintf(format, v...)) }

func (b *bridge) Noticef(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	b.logger.Debug(text)
	b.heard(text)
}

// intended are warnings of what is meant to be so. Nobody has to know of them: the second
// one reads as if passwords were in the log.
var intended = []string{
	"Maximum payloads over",        // the largest append needs them, and only processes of this machine send any
	"Plaintext passwords detected", // made anew at each start, and written nowhere but to owner.json; or as [ReadUsers] has them
}

func (b *bridge) Warnf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if slices.ContainsFunc(intended, func(prefix string) bool { return strings.HasPrefix(text, prefix) }) {
		return
	}
	b.complain(text)
	b.logger.Warn(text)
}

func (b *bridge) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	b.complain(text)
	b.logger.Error(text)
	b.heard(text)
}

func (b *bridge) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	b.logger.Error(text)
	select {
	case b.fatal <- errors.New(text):
	default:
	}
}
