package events

import (
	"strings"
	"testing"
)

// Validate does not decode the data that New made, but does decode other data in their place.
func TestOnlyWhatNewMadeIsTaken(t *testing.T) {
	sub := Session("", "s")
	newTurn := func() Event {
		e, err := New("urn:t", sub, &TurnAppended{Entries: []Entry{{Thread: MainThread, Turn: Raw(`{"a":1}`)}}})
		if err != nil {
			t.Fatal(err)
		}
		e.ID = "e1"
		return e
	}
	if e := newTurn(); !e.isMade() || e.Validate() != nil {
		t.Fatalf("isMade = %v, Validate = %v", e.isMade(), e.Validate())
	}
	for name, change := range map[string]func(*Event){
		"other data":      func(e *Event) { e.Data = []byte(`{"entries":[]}`) },
		"a part of them":  func(e *Event) { e.Data = e.Data[:len(e.Data)-1] },
		"no data":         func(e *Event) { e.Data = nil },
		"another type":    func(e *Event) { e.Type = TypeRunFinished },
		"an unknown type": func(e *Event) { e.Type = "org.example.thing" },
		"equal data":      func(e *Event) { e.Data = []byte(string(e.Data)) },
	} {
		e := newTurn()
		change(&e)
		if e.isMade() {
			t.Errorf("%s: isMade is true", name)
		}
		wrong := !strings.Contains(name, "unknown") && name != "equal data"
		if err := e.Validate(); (err != nil) != wrong {
			t.Errorf("%s: got %v, want an error: %v", name, err, wrong)
		}
	}
	// Validate checks the other attributes.
	e := newTurn()
	e.ID = ""
	if e.Validate() == nil {
		t.Error("Validate accepted an event without id")
	}
}

func TestEqualEvents(t *testing.T) {
	one, err := New("urn:t", Session("", "s"), &ThreadTruncated{Lengths: map[string]int{MainThread: 1}, Reason: "test"})
	if err != nil {
		t.Fatal(err)
	}
	same := one
	same.Data, same.made = []byte(string(one.Data)), nil
	if !one.Equal(same) || !same.Equal(one) {
		t.Error("equal events with copied data are not equal")
	}
	if one.Equal(one.WithExtension("x", "y")) {
		t.Error("Equal ignores an extension")
	}
	same.Data[2]++
	if one.Equal(same) {
		t.Error("Equal ignores the data")
	}
}
