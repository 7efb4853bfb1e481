package registry

import (
	"context"
	"errors"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Gate refuses appends that contradict the registered types of a log. Only this process may append to the log. A Gate is
// safe for concurrent use.
type Gate struct {
	src projector.Source

	mu     sync.Mutex // guards what follows
	known  map[string]*known
	claims map[string]*claim
}

// known is a looked-up type. Its Entry is nil if the type is not registered.
type known struct {
	*Entry
	once   sync.Once // compiles the schema
	schema *schema
	bad    error
}

// claim is a registration in progress. It keeps others from registering the name with another movement.
type claim struct {
	Entry
	users int
	stays bool // it may be stored later
}

// maxKnown bounds the names that a Gate remembers.
const maxKnown = 4096

// NewGate returns a gate. Watch sets its log.
func NewGate() *Gate {
	return &Gate{known: make(map[string]*known), claims: make(map[string]*claim)}
}

// Watch sets the log. It must be called once, before the first append.
func (g *Gate) Watch(src projector.Source) { g.src = src }

// Admit is a log.Host.Admit. It refuses invalid documents of types and their deletion, another movement of a registered
// type (an *events.TypeError), and data that are not as the schema of their type says.
func (g *Gate) Admit(ctx context.Context, parts []log.Part) (settle func([]log.Ack, error), err error) {
	var names []string
	for _, p := range parts {
		for _, e := range p.Events {
			switch {
			case p.Subject.Kind == events.KindType && p.Subject.Namespace != events.DefaultNamespace:
				err = invalid("subject", "types are registered in the namespace %s", events.DefaultNamespace)
			case p.Subject.Kind == events.KindType:
				if err = g.claim(ctx, p.Subject.ID, e); err == nil {
					names = append(names, p.Subject.ID)
				}
			case !events.IsKnown(e.Type):
				e.Subject = p.Subject
				err = g.check(ctx, e)
			}
			if err != nil {
				g.settle(names, err)
				return nil, err
			}
		}
	}
	if names == nil {
		return nil, nil
	}
	return func(_ []log.Ack, err error) { g.settle(names, err) }, nil
}

// check checks the data of an event against the schema of its type.
func (g *Gate) check(ctx context.Context, e events.Event) error {
	k, err := g.find(ctx, e.Type)
	if err != nil || k.Entry == nil || k.Schema == nil {
		return err
	}
	rec, err := projector.Resolve(ctx, g.src, events.Record{Event: e}, events.MaxValue)
	if events.IsDamage(err) {
		return invalid(events.ExtDataRef, "%v", err)
	}
	if err != nil {
		return err
	}
	return k.check(rec.Event)
}

// find looks up a type, and remembers it.
func (g *Gate) find(ctx context.Context, name string) (*known, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if k := g.known[name]; k != nil {
		return k, nil
	}
	e, err := Find(ctx, g.src, name)
	if err != nil {
		return nil, err
	}
	if len(g.known) >= maxKnown {
		clear(g.known)
	}
	k := &known{Entry: e}
	g.known[name] = k
	return k, nil
}

// claim admits a revision of the document of a type.
func (g *Gate) claim(ctx context.Context, name string, e events.Event) error {
	if e.Type != events.TypeDocumentWritten {
		return invalid("type", "%s: a registered type is not deleted, because its events may be in the log", e.Type)
	}
	t, err := Parse(name, e.Data)
	if err != nil {
		return err
	}
	for {
		k, err := g.find(ctx, name)
		if err == nil && k.Entry != nil {
			err = k.Agree(t)
		}
		if err != nil {
			return err
		}
		if done, err := g.reserve(k, t); done || err != nil {
			return err
		}
	}
}

// reserve keeps others from registering a name with another movement. If the type that was looked up may have changed
// since, reserve returns false and the caller looks again.
func (g *Gate) reserve(k *known, t events.Type) (done bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := t.Name
	if g.known[name] != k {
		return false, nil
	}
	c := g.claims[name]
	if c == nil {
		c = &claim{Entry: Entry{Type: t}}
		g.claims[name] = c
	}
	if err := c.Agree(t); err != nil {
		return false, err
	}
	c.users++
	return true, nil
}

// settle ends the claims of an append, and forgets the types that it may have registered.
func (g *Gate) settle(names []string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		c := g.claims[name]
		c.users--
		c.stays = c.stays || errors.Is(err, log.ErrUnknown)
		delete(g.known, name)
		if c.users == 0 && !c.stays {
			delete(g.claims, name)
		}
	}
}
