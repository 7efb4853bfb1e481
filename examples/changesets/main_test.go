package main

func Example() {
	main()
	// Output:
	// ada is merged
	// ben is not merged: the menu has moved on
	// tea
	// coffee
}
