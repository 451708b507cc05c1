// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command imagetar writes a container image as a docker-archive, without an
// engine: the same input gives the same bytes, so a bundle's checksums change
// only when its content does.
//
//	imagetar -o coredns.tar -name quoin.test/coredns:v1 -entrypoint /coredns <layer>...
//
// A layer is a folder or a tar of one. Everything in it belongs to root.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/image"
)

// list is a flag that may be given more than once.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

// pairs is a flag of the form NAME=value that may be given more than once.
type pairs map[string]string

func (p pairs) String() string { return fmt.Sprint(map[string]string(p)) }

func (p pairs) Set(text string) error {
	name, value, found := strings.Cut(text, "=")
	if !found {
		return fmt.Errorf("%q has no =", text)
	}
	p[name] = value
	return nil
}

func main() {
	log.SetFlags(0)
	var names, entrypoint, environment list
	labels := pairs{}
	output := flag.String("o", "", "file to write")
	user := flag.String("user", "", "user and group of its containers; root when left out")
	flag.Var(&names, "name", "full name of the image with its tag; may repeat")
	flag.Var(&entrypoint, "entrypoint", "one word of the entrypoint; may repeat")
	flag.Var(&environment, "env", "NAME=value; may repeat")
	flag.Var(labels, "label", "NAME=value; may repeat")
	flag.Parse()
	if *output == "" || len(names) == 0 || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	options := image.Options{
		Architecture: runtime.GOARCH, Entrypoint: entrypoint, Environment: environment, User: *user, Labels: labels,
	}
	if err := write(*output, names, options, flag.Args()); err != nil {
		log.Fatalf("writing %s: %v", *output, err)
	}
}

func write(path string, names []string, options image.Options, layers []string) error {
	builder, err := image.NewBuilder()
	if err != nil {
		return err
	}
	defer func() { _ = builder.Close() }()
	made, err := builder.Docker(options, layers...)
	if err != nil {
		return err
	}
	return image.WriteDocker(path, made, names...)
}
