package main

func Example() {
	main()
	// Output:
	// 9 done
	// 1 dead
}
