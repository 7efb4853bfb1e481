package main

func Example() {
	main()
	// Output:
	// worker "worker-1" was lost
	// late: true
	// in build
	// in test
	// 1 build false
	// 2 test true
	// 3 build false
	// 4 test false
	// 5 shipped false
}
