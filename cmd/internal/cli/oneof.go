package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// oneOf is a flag whose value is one of several words.
type oneOf[T ~string] struct {
	value *T
	kind  string
	words []T
}

// OneOf returns a flag that sets value to one of the words. kind is the name of the value in the help.
func OneOf[T ~string](value *T, kind string, words ...T) pflag.Value {
	return &oneOf[T]{value, kind, words}
}

// Set implements pflag.Value.
func (o *oneOf[T]) Set(s string) error {
	if !slices.Contains(o.words, T(s)) {
		last := len(o.words) - 1
		return fmt.Errorf("want %s or %s", strings.Join(o.Words()[:last], ", "), o.words[last])
	}
	*o.value = T(s)
	return nil
}

// String implements pflag.Value.
func (o *oneOf[T]) String() string { return string(*o.value) }

// Type implements pflag.Value.
func (o *oneOf[T]) Type() string { return o.kind }

// Words returns the words of the flag.
func (o *oneOf[T]) Words() []string {
	var list []string
	for _, word := range o.words {
		list = append(list, string(word))
	}
	return list
}
