package main

func Example() {
	main()
	// Output:
	// told: true
	// the coder has: verdict ()
	// the coder has: malfunction (overdue)
	// unread by the lead: 3
}
