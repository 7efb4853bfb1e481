package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
)

// Names of the ways to store the events of many sessions.
const (
	whatSessionAppends   = "tally append, all views"
	whatSQLiteSessions   = "SQLite rows, 512 a commit"
	whatPostgresSessions = "PostgreSQL rows, 512 a commit"
)

// sessionsBenched is the output of --views with -o json.
type sessionsBenched struct {
	Directory  string             `json:"directory"`
	FileSystem string             `json:"fileSystem"`
	Order      string             `json:"order"`
	IDs        string             `json:"ids"`
	Results    []sessionRun       `json:"results"`
	Ratios     map[string]float64 `json:"ratios"` // of this run
}

// sessionBench are the settings of --views.
type sessionBench struct {
	sizes []int
	traffic
	rest  time.Duration
	split bool
}

func (s sessionBench) check() error {
	for _, size := range s.sizes {
		t := s.traffic
		t.Sessions = size
		if err := t.check(); err != nil {
			return err
		}
	}
	if len(s.sizes) == 0 || s.rest < 0 {
		return cli.Usagef("want --sessions, and a --rest that is not negative")
	}
	return nil
}

// runSessions measures each number of sessions, each way in a process of its own.
func (b *bencher) runSessions(ctx context.Context, dir string) error {
	doc := sessionsBenched{Directory: b.dir, FileSystem: fileSystem(dir), Order: b.many.Order, IDs: b.many.IDs}
	ways := []string{whatSessionAppends, whatSQLiteSessions}
	if b.postgres != "" || os.Getenv("PGHOST") != "" {
		ways = append(ways, whatPostgresSessions)
	}
	progress := cli.NewProgress(b.app.Err, b.app.Progress, "measuring")
	steps := int64(len(b.many.sizes) * len(ways))
	for _, size := range b.many.sizes {
		t := b.many.traffic
		t.Sessions = size
		t = t.withDefaults()
		for _, what := range ways {
			progress.At(int64(len(doc.Results)+1), steps, fmt.Sprintf("%s, %d sessions", what, size))
			p := &sessionProcess{traffic: t, what: what, postgres: b.postgres, rest: b.many.rest, split: b.many.split}
			m, err := p.start(ctx, dir)
			if err != nil {
				return fmt.Errorf("%s, %d sessions: %w", what, size, err)
			}
			doc.Results = append(doc.Results, m)
		}
	}
	progress.Done(steps, "")
	doc.Ratios = sessionRatios(doc.Results)
	if b.app.Format != cli.Text {
		return cli.WriteJSON(b.app.Out, b.app.Format, doc)
	}
	return b.sessionTable(doc)
}

// start runs the process in a new directory below dir.
func (p *sessionProcess) start(ctx context.Context, dir string) (m sessionRun, err error) {
	if p.dir, err = os.MkdirTemp(dir, "sessions-"); err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, discard(p.dir)) }()
	if p.dir, err = filepath.Abs(p.dir); err != nil {
		return m, err
	}
	self, err := os.Executable()
	if err != nil {
		return m, err
	}
	cmd := exec.CommandContext(ctx, self, p.arguments()...)
	cmd.Dir = p.dir // a folder without a project's file
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = startLimit
	cmd.Env = plainEnvironment()
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return m, fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
	}
	return m, json.Unmarshal(out, &m)
}

// sessionRatios compares the ways, and the numbers of sessions with the first of them.
func sessionRatios(results []sessionRun) map[string]float64 {
	ratios := make(map[string]float64)
	note := func(name string, of, to float64) {
		if of > 0 && to > 0 {
			ratios[name] = of / to
		}
	}
	for _, m := range results {
		if m.What != whatSessionAppends {
			continue
		}
		for _, peer := range results {
			switch {
			case peer.What != m.What && peer.Sessions == m.Sessions:
				note(fmt.Sprintf("CPU, %s / %s, %d sessions", m.What, peer.What, m.Sessions), m.CPU, peer.CPU)
				note(fmt.Sprintf("rate, %s / %s, %d sessions", m.What, peer.What, m.Sessions), m.PerSecond, peer.PerSecond)
			case peer.What == m.What && peer.Sessions == results[0].Sessions && m.Sessions != peer.Sessions:
				note(fmt.Sprintf("CPU, %d sessions / %d", m.Sessions, peer.Sessions), m.CPU, peer.CPU)
			}
		}
	}
	return ratios
}

func (b *bencher) sessionTable(d sessionsBenched) error {
	rates := render.Table{Head: []string{"WHAT", "SESSIONS", "EVENTS", "PER SECOND", "CPU/EVENT", "P50", "P99", "PEAK", "CPU AFTER"},
		Right: []int{1, 2, 3, 4, 5, 6, 7, 8}, Cut: []int{0}, Drop: []int{2, 5, 8}}
	views := render.Table{Head: []string{"VIEW", "SESSIONS", "LAG", "CAUGHT UP"}, Right: []int{1, 2, 3}}
	split := render.Table{Head: []string{"CPU OF", "SESSIONS", "CPU/EVENT"}, Right: []int{1, 2}}
	for _, m := range d.Results {
		size := strconv.Itoa(m.Sessions)
		row := []string{m.What, size, strconv.Itoa(m.Events), fmt.Sprintf("%.0f", m.PerSecond), "-", micros(m.P50), micros(m.P99), plain.Bytes(m.Peak), "-"}
		if m.CPU > 0 {
			row[4] = fmt.Sprintf("%.1fµs", m.CPU)
		}
		if m.What == whatSessionAppends {
			row[8] = micros(m.Rest * 1000)
		}
		rates.Rows = append(rates.Rows, row)
		for _, v := range m.Views {
			views.Rows = append(views.Rows, []string{v.View, size, strconv.FormatUint(v.Events, 10), micros(v.CaughtUp * 1000)})
		}
		for _, name := range slices.Sorted(maps.Keys(m.CPUSplit)) {
			split.Rows = append(split.Rows, []string{name, size, fmt.Sprintf("%.1fµs", m.CPUSplit[name])})
		}
	}
	err := errors.Join(b.app.Say("%s, %s, order %s, %s ids\n", d.Directory, d.FileSystem, d.Order, d.IDs), b.app.Table(rates), b.app.Say(""), b.app.Table(views), b.app.Say(""))
	if len(split.Rows) > 0 {
		err = errors.Join(err, b.app.Table(split), b.app.Say(""))
	}
	return errors.Join(err, b.app.Table(ratioTable(d.Ratios)))
}
