// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"
)

const (
	// account is where the kubelet puts the pod's own credentials.
	account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	// kubeletConfig names the API server as this node reaches it.
	kubeletConfig = "/etc/kubernetes/kubelet.conf"
	// watchSeconds bounds one watch: the token changes and connections die
	// silently, so a list now and then is worth its cost.
	watchSeconds = 120
)

// node is what the network needs to know of a node.
type node struct {
	Name    string
	PodCIDR string
	Address string
}

// client speaks to the API server with nothing but the standard library: an
// image of 8 MB instead of 40 is loaded on every host of every test.
type client struct {
	server string
	http   *http.Client
}

var serverLine = regexp.MustCompile(`(?m)^\s*server:\s*"?([^"\s]+)"?\s*$`)

// newClient finds the API server: API_SERVER if it is set, else the address in
// the kubelet's kubeconfig.
func newClient() (*client, error) {
	server := os.Getenv("API_SERVER")
	if server == "" {
		config, err := os.ReadFile(kubeletConfig)
		if err != nil {
			return nil, fmt.Errorf("finding the API server: %w", err)
		}
		match := serverLine.FindSubmatch(config)
		if match == nil {
			return nil, fmt.Errorf("finding the API server: no server in %s", kubeletConfig)
		}
		server = string(match[1])
	}
	authority, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("reading the cluster's authority: no certificate in it")
	}
	return &client{
		server: strings.TrimSuffix(server, "/"),
		http: &http.Client{Transport: &http.Transport{
			TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			ResponseHeaderTimeout: 15 * time.Second,
		}},
	}, nil
}

// get sends one request; the token is read anew because the kubelet renews it.
func (c *client) get(ctx context.Context, path string) (io.ReadCloser, error) {
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return nil, fmt.Errorf("reading the token: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.server+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 300))
		return nil, fmt.Errorf("GET %s: %s: %s", path, response.Status, text)
	}
	return response.Body, nil
}

// list returns all nodes and the revision to watch from.
func (c *client) list(ctx context.Context) ([]node, string, error) {
	limited, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	body, err := c.get(limited, "/api/v1/nodes")
	if err != nil {
		return nil, "", fmt.Errorf("listing nodes: %w", err)
	}
	defer body.Close()
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []struct {
			Metadata struct{ Name string }
			Spec     struct{ PodCIDR string }
			Status   struct {
				Addresses []struct{ Type, Address string }
			}
		}
	}
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return nil, "", fmt.Errorf("listing nodes: %w", err)
	}
	nodes := make([]node, 0, len(list.Items))
	for _, item := range list.Items {
		n := node{Name: item.Metadata.Name, PodCIDR: item.Spec.PodCIDR}
		for _, address := range item.Status.Addresses {
			if address.Type == "InternalIP" && !strings.Contains(address.Address, ":") {
				n.Address = address.Address
				break
			}
		}
		nodes = append(nodes, n)
	}
	return nodes, list.Metadata.ResourceVersion, nil
}

// waitForChange returns when a node changed, or when it is time to look again.
// What changed does not matter: the list tells.
func (c *client) waitForChange(ctx context.Context, revision string) error {
	limited, cancel := context.WithTimeout(ctx, (watchSeconds+15)*time.Second)
	defer cancel()
	body, err := c.get(limited, fmt.Sprintf("/api/v1/nodes?watch=1&timeoutSeconds=%d&resourceVersion=%s", watchSeconds, revision))
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	defer body.Close()
	var event struct{ Type string }
	if err := json.NewDecoder(body).Decode(&event); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("watching nodes: %w", err)
	}
	return nil
}
