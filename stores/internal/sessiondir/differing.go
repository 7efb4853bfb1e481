package sessiondir

import (
	"context"
	"slices"
)

// Differing lists the files whose bytes the session would not give back, and those that only one
// of both has.
func Differing[F Found[V], V View](ctx context.Context, v V, f F) ([]string, error) {
	names, err := v.Paths(ctx)
	if err != nil {
		return nil, err
	}
	for _, file := range f.Base().Files {
		names = append(names, file.Path)
	}
	slices.Sort(names)
	var list []string
	for _, name := range slices.Compact(names) {
		if f.Leaves(name) {
			continue
		}
		same, err := f.Same(ctx, v, name)
		if err != nil {
			return nil, err
		}
		if !same {
			list = append(list, name)
		}
	}
	if len(list) == 0 && !f.IsAt(v.Dir()) {
		list = []string{"."}
	}
	return list, nil
}
