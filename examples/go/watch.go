package main

import (
	"context"
	"fmt"

	pb "github.com/stickycas/stickycas/gen/go/stickycas/v1"
)

// watch prints what happens at an instance, from its first event to its end.
func watch(ctx context.Context, c *cluster, instance string) error {
	found, err := c.get(ctx, instance)
	if err != nil {
		return err
	}
	w := &watcher{cluster: c, instanceID: found.Instance.InstanceId}
	return c.repeat(ctx, func() error { return w.follow(ctx) })
}

// watcher knows how far it has come, so that a new stream goes on there.
type watcher struct {
	cluster    *cluster
	instanceID string
	phase      uint64 // the last phase of which an event came
	next       uint64 // the index of the event that is due
}

// follow prints the events of one stream. Without an error the instance has come to its end.
func (w *watcher) follow(ctx context.Context) error {
	conn, err := w.cluster.conn()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := &pb.WatchRequest{InstanceId: w.instanceID, FromPhase: w.phase}
	stream, err := pb.NewInstanceServiceClient(conn).Watch(ctx, request)
	if err != nil {
		return refusalOf(err)
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return refusalOf(err) // io.EOF too: the instance has not come to its end
		}
		w.cluster.noteAnswer()
		for _, event := range response.GetEvents().GetEvents() {
			if event.Index < w.next {
				continue // it came on an earlier stream
			}
			if event.Index > w.next {
				return fmt.Errorf("gap: event %d came where %d was due", event.Index, w.next)
			}
			w.next++
			switch what := event.What.(type) {
			case *pb.Event_Stepped_:
				w.phase = what.Stepped.Phase
			case *pb.Event_Added_:
				fmt.Printf("entry %d %d %s\n", what.Added.Position, what.Added.Process, what.Added.Value)
			case *pb.Event_Decided_:
				fmt.Printf("decided %d %s\n", what.Decided.Process, what.Decided.Value)
			case *pb.Event_Finished_:
				fmt.Println("finished")
				return nil
			case *pb.Event_Closed_:
				fmt.Println("closed")
				return nil
			}
		}
	}
}
