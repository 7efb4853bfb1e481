package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// serverLog passes the server's log lines to slog. A fatal error of the server becomes an error of Start and never ends
// the process.
type serverLog struct {
	logger *slog.Logger
	fatal  chan error
	heard  func(text string) // called with every error and notice

	mu   sync.Mutex // guards said
	said []string   // the first warnings and errors
}

const maxComplaints = 8

func newServerLog(lg *slog.Logger, heard func(string)) *serverLog {
	return &serverLog{logger: lg.With("component", "nats-server"), heard: heard, fatal: make(chan error, 1)}
}

func (b *serverLog) complain(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.said) < maxComplaints {
		b.said = append(b.said, text)
	}
}

func (b *serverLog) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.said)
}

func (b *serverLog) Debugf(format string, v ...any) { b.logger.Debug(fmt.Sprintf(format, v...)) }
func (b *serverLog) Tracef(format string, v ...any) { b.logger.Debug(fmt.Sprintf(format, v...)) }

func (b *serverLog) Noticef(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	b.logger.Debug(text)
	b.heard(text)
}

// intended lists prefixes of warnings about intended settings. Logging them would mislead: the second sounds as if the
// log contained passwords.
var intended = []string{
	"Maximum payloads over",        // the largest append needs them
	"Plaintext passwords detected", // passwords are random at each start and stored only in owner.json, or come from [ReadUsers]
}

func (b *serverLog) Warnf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if slices.ContainsFunc(intended, func(prefix string) bool { return strings.HasPrefix(text, prefix) }) {
		return
	}
	b.complain(text)
	b.logger.Warn(text)
}

func (b *serverLog) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	b.complain(text)
	b.logger.Error(text)
	b.heard(text)
}

func (b *serverLog) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	b.logger.Error(text)
	select {
	case b.fatal <- errors.New(text):
	default:
	}
}
