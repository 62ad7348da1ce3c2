package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"regexp"
	"strings"
	"time"

	pb "github.com/stickycas/stickycas/gen/go/stickycas/v1"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	callTimeout  = 10 * time.Second // of one call, and of whatever need not wait for a phase
	firstPause   = 50 * time.Millisecond
	longestPause = 500 * time.Millisecond
	maxRedirects = 4 // in a row
)

// refusal says why a request was not answered.
type refusal struct {
	code    codes.Code
	reason  string // of StickyCAS; empty: the connection broke, whatever the code
	message string
	owner   string        // the server to ask, if the refusal names one
	delay   time.Duration // to wait at least
	final   bool          // to ask again does not help
	waited  bool          // the server is there, and the same request will be answered
	inBand  bool          // on a stream that goes on
}

func (r *refusal) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%v %s", code.Code(r.code), r.reason)) + ": " + r.message
}

// newRefusal knows which reasons are final.
func newRefusal(c codes.Code, reason, message string) *refusal {
	r := &refusal{code: c, reason: reason, message: message}
	switch {
	case reason == "":
	case c == codes.Unavailable, c == codes.DeadlineExceeded, c == codes.ResourceExhausted, c == codes.Internal:
		r.final = reason == "TOO_MANY_SESSIONS"
	default:
		r.final = true
	}
	r.waited = reason == "DEADLINE" || reason == "RECOVERING"
	return r
}

// refusalOf reads the details of a failed call or stream.
func refusalOf(err error) *refusal {
	s := status.Convert(err)
	var info *errdetails.ErrorInfo
	var retry *errdetails.RetryInfo
	for _, detail := range s.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == "stickycas.v1" {
				info = detail
			}
		case *errdetails.RetryInfo:
			retry = detail
		}
	}
	r := newRefusal(s.Code(), info.GetReason(), s.Message())
	r.owner = info.GetMetadata()["owner"]
	r.delay = toDuration(retry.GetRetryDelay())
	return r
}

func toDuration(d interface {
	GetSeconds() int64
	GetNanos() int32
}) time.Duration {
	return time.Duration(d.GetSeconds())*time.Second + time.Duration(d.GetNanos())
}

// cluster is the servers that were given. One is asked at a time, until another is known to be the owner.
type cluster struct {
	addresses   []string
	options     []grpc.DialOption
	giveUpAfter time.Duration
	random      *rand.Rand
	conns       map[string]*grpc.ClientConn

	asked       int // the index of the server that is asked
	redirects   int
	pause       time.Duration
	silentSince time.Time // zero: the last request was answered
}

func newCluster(servers string, options []grpc.DialOption, giveUpAfter time.Duration) *cluster {
	c := &cluster{options: options, giveUpAfter: giveUpAfter, pause: firstPause, conns: map[string]*grpc.ClientConn{}}
	c.random = rand.New(rand.NewSource(time.Now().UnixNano()))
	for _, server := range strings.Split(servers, ",") {
		c.addresses = append(c.addresses, strings.TrimPrefix(strings.TrimPrefix(server, "http://"), "https://"))
	}
	return c
}

func (c *cluster) close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

// conn returns the connection to the server that is asked; there is one for each server.
func (c *cluster) conn() (*grpc.ClientConn, error) {
	address := c.addresses[c.asked]
	if conn := c.conns[address]; conn != nil {
		return conn, nil
	}
	conn, err := grpc.Dial(address, c.options...)
	if err == nil {
		c.conns[address] = conn
	}
	return conn, err
}

// ask makes the same unary call until it is answered or refused for good.
func (c *cluster) ask(ctx context.Context, call func(context.Context, *grpc.ClientConn) error) error {
	return c.repeat(ctx, func() error { return c.call(ctx, call) })
}

// call makes a unary call once.
func (c *cluster) call(ctx context.Context, call func(context.Context, *grpc.ClientConn) error) error {
	conn, err := c.conn()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := call(ctx, conn); err != nil {
		r := refusalOf(err)
		if r.reason == "" {
			// No StickyCAS server answers so.
			r.final = r.code == codes.Unimplemented || r.code == codes.Unauthenticated || r.code == codes.PermissionDenied ||
				r.code == codes.NotFound
		}
		return r
	}
	return nil
}

// repeat makes the same request until it is answered or refused for good. That is safe whether a try was executed or not:
// an access has its number, and a decision or a Create with a name is the same when it comes again.
func (c *cluster) repeat(ctx context.Context, request func() error) error {
	for {
		err := request()
		if err == nil {
			c.noteAnswer()
			return nil
		}
		if err := c.prepareAgain(ctx, err); err != nil {
			return err
		}
	}
}

// noteAnswer begins anew: the next pause is a short one.
func (c *cluster) noteAnswer() {
	c.noteWelcome()
	c.pause = firstPause
}

// noteWelcome notes that the server is there. The pause stays, or streams that break behind each Welcome would follow each other
// at once.
func (c *cluster) noteWelcome() {
	c.redirects, c.silentSince = 0, time.Time{}
}

// prepareAgain chooses the server to ask next, and waits if that is due. It returns an error if nothing is to be asked again.
func (c *cluster) prepareAgain(ctx context.Context, err error) error {
	var r *refusal
	if !errors.As(err, &r) || r.final {
		return err
	}
	fmt.Fprintf(os.Stderr, "asks again: %v %s\n", code.Code(r.code), r.reason)
	if r.waited {
		c.silentSince = time.Time{}
	} else if c.silentSince.IsZero() {
		c.silentSince = time.Now()
	} else if time.Since(c.silentSince) > c.giveUpAfter {
		return fmt.Errorf("given up after %v: %w", c.giveUpAfter, err)
	}
	if c.redirects < maxRedirects && c.follow(r.owner) {
		c.redirects++
		return nil
	}
	c.redirects = 0
	if r.code == codes.Unavailable || (r.reason == "" && !r.waited) {
		c.asked = (c.asked + 1) % len(c.addresses)
	}
	wait := c.pause + time.Duration(c.random.Int63n(int64(c.pause/2))) // not all clients at the same moment
	if r.delay > wait {
		wait = r.delay
	}
	c.pause *= 2
	if c.pause > longestPause {
		c.pause = longestPause
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// follow turns to another server that was given, and to no other.
func (c *cluster) follow(owner string) bool {
	for i, address := range c.addresses {
		if address == owner && i != c.asked {
			c.asked = i
			return true
		}
	}
	return false
}

var instanceID = regexp.MustCompile("^[0-9a-f]{32}$")

// get finds an instance by its name or id. Any server may be asked.
func (c *cluster) get(ctx context.Context, instance string) (*pb.GetResponse, error) {
	request := &pb.GetRequest{Instance: &pb.GetRequest_Name{Name: instance}}
	if instanceID.MatchString(instance) {
		request.Instance = &pb.GetRequest_InstanceId{InstanceId: instance}
	}
	var response *pb.GetResponse
	err := c.ask(ctx, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		response, err = pb.NewInstanceServiceClient(conn).Get(ctx, request)
		return err
	})
	return response, err
}
