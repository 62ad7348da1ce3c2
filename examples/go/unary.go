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

func (u *unaryCalls) perform(ctx context.Context, a access) (result *pb.ReadResult, err error) {
	call := func(ctx context.Context, conn *grpc.ClientConn) error {
		client := pb.NewStickyCasServiceClient(conn)
		if a.value != nil {
			_, err := client.Append(ctx, &pb.AppendRequest{InstanceId: u.instanceID, AccessNumber: a.number, Value: a.value})
			return err
		}
		response, err := client.Read(ctx, &pb.ReadRequest{InstanceId: u.instanceID, AccessNumber: a.number, Start: a.start})
		result = response.GetResult()
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
	return result, err
}

func (u *unaryCalls) decide(ctx context.Context, value []byte) error {
	return u.cluster.ask(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := pb.NewStickyCasServiceClient(conn).Decide(ctx, &pb.DecideRequest{InstanceId: u.instanceID, Value: value})
		return err
	})
}
