// A stand-in for Azure Resource Manager: Microsoft's generated fakes of its Go SDK behind an HTTP server.
//
// The fakes check paths, parse bodies into the SDK's types and write the answers. This program adds what they leave to
// their users: routes (arm.go), long-running operations and permissions (arm.go, permissions.go), resources (compute.go,
// network.go, schedules.go), the metadata service of machines (guest.go), and what tests need: faults, a log of the calls
// and the list of the machines that should run (admin.go).
package main

import (
	"crypto/tls"
	"encoding/json"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
)

const subscription = "00000000-0000-0000-0000-000000000001"

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address of the server, HTTPS with -cert")
	guests := flag.String("guests", "", "address of the metadata service of machines, HTTP")
	cert, key := flag.String("cert", "", "file of the certificate"), flag.String("key", "", "file of its key")
	flag.Parse()
	c := newCloud()
	f := newFace(c)
	if *guests != "" {
		inside, err := net.Listen("tcp", *guests)
		if err != nil {
			log.Fatal(err)
		}
		go func() { log.Fatal(http.Serve(inside, http.HandlerFunc(f.serveGuests))) }()
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	if *cert != "" {
		pair, err := tls.LoadX509KeyPair(*cert, *key)
		if err != nil {
			log.Fatal(err)
		}
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}})
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]string{"address": listener.Addr().String()})
	log.Fatal(http.Serve(listener, f))
}
