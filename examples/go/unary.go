package main

import (
	"context"
	"errors"

	pb "github.com/stickycas/stickycas/gen/go/stickycas/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// unaryCalls makes a call for each access.
type unaryCalls struct {
	cluster    *cluster
	instanceID string
}

func (u *unaryCalls) perform(ctx context.Context, a access) (answer *pb.Answer, err error) {
	call := func(ctx context.Context, conn *grpc.ClientConn) error {
		client := pb.NewStickyCasServiceClient(conn)
		if a.value != nil {
			response, err := client.Append(ctx, &pb.AppendRequest{InstanceId: u.instanceID, AccessNumber: a.number, Value: a.value})
			answer = &pb.Answer{Phase: response.GetPhase(), Result: &pb.Answer_Append{Append: response.GetResult()}}
			return err
		}
		response, err := client.Read(ctx, &pb.ReadRequest{InstanceId: u.instanceID, AccessNumber: a.number, Start: a.start})
		answer = &pb.Answer{Phase: response.GetPhase(), Result: &pb.Answer_Read{Read: response.GetResult()}}
		return err
	}
	err = u.cluster.repeat(ctx, func() error {
		err := u.cluster.call(ctx, call)
		var r *refusal
		if errors.As(err, &r) && r.code == codes.DeadlineExceeded {
			r.waited = true // for the phase of this process
		}
		return err
	})
	return answer, err
}

func (u *unaryCalls) decide(ctx context.Context, value []byte) error {
	return u.cluster.ask(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := pb.NewStickyCasServiceClient(conn).Decide(ctx, &pb.DecideRequest{InstanceId: u.instanceID, Value: value})
		return err
	})
}
