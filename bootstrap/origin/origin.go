// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package origin compares which server a URL is of.
package origin

import (
	"net"
	"net/url"
	"strings"
)

// Of is the scheme, name and port of an http or https URL, in the same text however it is written: names and schemes
// are the same in capitals, and a port that the scheme implies is the same when it is given (RFC 6454, section 4).
func Of(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
