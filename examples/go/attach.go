package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	pb "github.com/stickycas/stickycas/gen/go/stickycas/v1"
	"google.golang.org/grpc/codes"
)

// attach performs all accesses on one stream. When it breaks, a new stream and the same access number go on.
type attach struct {
	cluster     *cluster
	instanceID  string
	incarnation uint64 // random, the same for this whole life

	stream   pb.StickyCasService_AttachClient // nil: none is open
	received <-chan received
	cancel   context.CancelFunc
}

// received is a frame, or the error with which the stream has ended.
type received struct {
	frame *pb.ServerFrame
	err   error
}

// begin opens the first stream and returns the state of the process.
func (t *attach) begin(ctx context.Context) (own *pb.Own, err error) {
	err = t.cluster.repeat(ctx, func() (err error) {
		own, err = t.open(ctx)
		return err
	})
	return own, err
}

func (t *attach) perform(ctx context.Context, a access) (*pb.Answer, error) {
	frame := &pb.Access{Number: a.number}
	if a.value != nil {
		frame.Op = &pb.Access_Append{Append: &pb.Append{Value: a.value}}
	} else {
		frame.Op = &pb.Access_Read{Read: &pb.Read{Start: a.start}}
	}
	answer, err := t.exchange(ctx, &pb.ClientFrame{Frame: &pb.ClientFrame_Access{Access: frame}})
	return answer.GetAnswer(), err
}

func (t *attach) decide(ctx context.Context, value []byte) error {
	frame := &pb.ClientFrame_Decision{Decision: &pb.Decision{Value: value}}
	_, err := t.exchange(ctx, &pb.ClientFrame{Frame: frame})
	return err
}

// exchange sends the same frame, on a new stream if need be, until it is answered or refused for good.
func (t *attach) exchange(ctx context.Context, frame *pb.ClientFrame) (answer *pb.ServerFrame, err error) {
	err = t.cluster.repeat(ctx, func() (err error) {
		if t.stream == nil {
			if _, err := t.open(ctx); err != nil {
				return err
			}
		}
		answer, err = t.try(ctx, frame)
		return err
	})
	return answer, err
}

// open opens a stream to the server that is asked, and the instance on it.
func (t *attach) open(ctx context.Context) (*pb.Own, error) {
	conn, err := t.cluster.conn()
	if err != nil {
		return nil, err
	}
	streamContext, cancel := context.WithCancel(ctx)
	stream, err := pb.NewStickyCasServiceClient(conn).Attach(streamContext)
	if err != nil {
		cancel()
		return nil, refusalOf(err)
	}
	t.stream, t.received, t.cancel = stream, receive(streamContext, stream), cancel
	hello := &pb.Hello{InstanceId: t.instanceID, Incarnation: t.incarnation}
	answer, err := t.try(ctx, &pb.ClientFrame{Frame: &pb.ClientFrame_Hello{Hello: hello}})
	if err != nil {
		t.close()
		return nil, err
	}
	t.cluster.noteWelcome()
	return answer.GetWelcome().GetOwn(), nil
}

func (t *attach) close() {
	if t.stream != nil {
		t.cancel()
		t.stream = nil
	}
}

// receive hands on what comes on a stream, until it ends.
func receive(ctx context.Context, stream pb.StickyCasService_AttachClient) <-chan received {
	out := make(chan received)
	send := func(r received) {
		select {
		case out <- r:
		case <-ctx.Done():
		}
	}
	go func() {
		for {
			response, err := stream.Recv()
			if err != nil {
				send(received{err: refusalOf(err)})
				return
			}
			for _, frame := range response.Frames {
				send(received{frame: frame})
			}
		}
	}()
	return out
}

// try sends a frame once and waits for its answer. After an error the stream is closed, unless it is still of use.
func (t *attach) try(ctx context.Context, frame *pb.ClientFrame) (*pb.ServerFrame, error) {
	answer, err := t.sendAndWait(ctx, frame)
	var r *refusal
	if err != nil && !(errors.As(err, &r) && r.code == codes.ResourceExhausted && r.inBand) {
		t.close()
	}
	return answer, err
}

func (t *attach) sendAndWait(ctx context.Context, frame *pb.ClientFrame) (*pb.ServerFrame, error) {
	var timeout <-chan time.Time // none for an access, which waits for its phase
	if frame.GetAccess() == nil {
		timer := time.NewTimer(callTimeout)
		defer timer.Stop()
		timeout = timer.C
	}
	request := &pb.AttachRequest{Frames: []*pb.ClientFrame{frame}}
	if err := t.stream.Send(request); err != nil && err != io.EOF { // with io.EOF the receiver learns the reason
		return nil, refusalOf(err)
	}
	for {
		select {
		case r := <-t.received:
			if r.err != nil {
				return nil, r.err
			}
			if answers, err := reply(r.frame, frame.GetAccess().GetNumber(), t.incarnation); answers || err != nil {
				return r.frame, err
			}
		case <-timeout:
			return nil, newRefusal(codes.DeadlineExceeded, "", "no answer on the stream")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// reply says whether a frame of the server answers what was sent: an access of this number, or else a Hello or a Decision.
func reply(frame *pb.ServerFrame, number, incarnation uint64) (bool, error) {
	switch f := frame.Frame.(type) {
	case *pb.ServerFrame_Welcome, *pb.ServerFrame_Decided:
		return true, nil
	case *pb.ServerFrame_Answer:
		return f.Answer.Number == number, nil
	case *pb.ServerFrame_Refusal:
		reason := strings.TrimPrefix(f.Refusal.Reason.String(), "REFUSAL_REASON_")
		r := newRefusal(codes.Code(f.Refusal.Code), reason, f.Refusal.Message)
		r.owner, r.delay, r.inBand = f.Refusal.Owner, toDuration(f.Refusal.RetryAfter), true
		return false, r
	case *pb.ServerFrame_Replaced:
		if f.Replaced.Incarnation != incarnation {
			return false, errors.New("REPLACED: another client plays this process")
		}
		return false, newRefusal(codes.Aborted, "", "an earlier hello of this client came late")
	}
	return false, nil // a frame of a newer protocol
}
