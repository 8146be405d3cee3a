// Command conformance is the worker program that `holdfast conformance` drives.
package main

import "holdfast.internal/holdfast/conformance/script"

func main() {
	script.Main(script.Options())
}
