package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// identity says at each call who calls: by a token, or to a server without credentials by the name alone.
type identity struct {
	principal string
	tokenFile string
}

// GetRequestMetadata reads the token each time, since it is replaced before it expires.
func (i identity) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if i.tokenFile == "" {
		return map[string]string{"stickycas-principal": i.principal}, nil
	}
	token, err := os.ReadFile(i.tokenFile)
	return map[string]string{"authorization": "Bearer " + strings.TrimSpace(string(token))}, err
}

// RequireTransportSecurity keeps tokens off connections without TLS.
func (i identity) RequireTransportSecurity() bool {
	return i.tokenFile != ""
}

// dialOptions says how to connect: by TLS with the credentials of a folder, or without TLS under a name.
func dialOptions(folder, principal string) ([]grpc.DialOption, error) {
	options := []grpc.DialOption{
		// A server that is paused or cut off closes nothing: only a ping without an answer tells.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 10 * time.Second}),
		// By default a server that was killed would be tried again after minutes only.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}),
		// The answer of a read on Attach may be larger than the default of 4 MiB.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
	}
	if folder == "" {
		// Newer releases also have credentials/insecure for this.
		return append(options, grpc.WithInsecure(), grpc.WithPerRPCCredentials(identity{principal: principal})), nil
	}
	authorities, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s/ca.crt has no certificate", folder)
	}
	token := filepath.Join(folder, "token")
	if _, err := os.ReadFile(token); err == nil {
		options = append(options, grpc.WithPerRPCCredentials(identity{tokenFile: token}))
	} else if errors.Is(err, os.ErrNotExist) {
		own, err := tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	} else {
		return nil, err
	}
	return append(options, grpc.WithTransportCredentials(credentials.NewTLS(config))), nil
}
