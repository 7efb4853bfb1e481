package sessiondir

import (
	"context"
	"slices"
)

// Differing lists the files that the session would not write with the same bytes, and those that only the folder or
// only the session has.
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
