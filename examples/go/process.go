package main

import (
	"context"
	"errors"

	pb "github.com/stickycas/stickycas/gen/go/stickycas/v1"
)

// access is an append of value, or without a value a read from position start on.
type access struct {
	number uint64
	value  []byte
	start  uint32
}

// accesses performs what a process does, one after the other, each until it is answered or refused for good.
type accesses interface {
	perform(ctx context.Context, a access) (*pb.Answer, error)
	decide(ctx context.Context, value []byte) error
}

// propose plays one correct process to its decision.
func propose(ctx context.Context, c *cluster, instance string, value []byte, unary bool) ([]byte, error) {
	found, err := c.get(ctx, instance)
	if err != nil {
		return nil, err
	}
	id, parameters, own := found.Instance.InstanceId, found.Instance.Parameters, found.Own
	if parameters.AppendWindow != pb.AppendWindow_APPEND_WINDOW_FIRST_ACCESS {
		return nil, errors.New("the instance has another append window than first_access, for which this algorithm is")
	}
	if own == nil {
		return nil, errors.New("the caller is no process of this instance")
	}
	var calls accesses
	if unary {
		calls = &unaryCalls{cluster: c, instanceID: id}
	} else {
		stream := &attach{cluster: c, instanceID: id, incarnation: c.random.Uint64()}
		defer stream.close()
		if own, err = stream.begin(ctx); err != nil {
			return nil, err
		}
		calls = stream
	}
	if own.Decided != nil {
		return own.Decided, nil // reported by an earlier life
	}
	appended, phase := own.Append.GetResult(), own.Append.GetPhase()
	// What an earlier life of this process has left. The same number and content again is the same access.
	for _, waiting := range own.Waiting {
		a := access{number: waiting.Number, value: waiting.GetAppend().GetValue(), start: waiting.GetRead().GetStart()}
		answer, err := calls.perform(ctx, a)
		if err != nil {
			return nil, err
		}
		if a.value != nil {
			appended, phase = answer.GetAppend(), answer.Phase
		}
	}
	warps := (parameters.Processes + parameters.WarpSize - 1) / parameters.WarpSize
	rounds := parameters.AppendRounds
	if rounds == 0 {
		rounds = 1
	}
	// Until it wins, or its warp has had its append rounds (K2).
	number := own.NextAccessNumber
	for number == 1 || appended.GetOutcome() == pb.AppendOutcome_APPEND_OUTCOME_FAILED && phase <= uint64(warps*(rounds-1)) {
		answer, err := calls.perform(ctx, access{number: number, value: value})
		if err != nil {
			return nil, err
		}
		appended, phase = answer.GetAppend(), answer.Phase
		number++
	}
	// No more entries than that can stand (K1).
	inLast := parameters.Processes - (warps-1)*parameters.WarpSize
	if inLast > rounds {
		inLast = rounds
	}
	entries, err := readAll(ctx, calls, number, int((warps-1)*rounds+inLast))
	if err != nil {
		return nil, err
	}
	decision := mode(entries)
	return decision, calls.decide(ctx, decision)
}

// readAll reads until it holds the most entries that there can be, or all of a sealed list.
func readAll(ctx context.Context, calls accesses, number uint64, most int) ([][]byte, error) {
	var entries [][]byte
	var length uint32
	sealed := false
	for len(entries) < most && !(sealed && len(entries) == int(length)) {
		start := uint32(len(entries))
		answer, err := calls.perform(ctx, access{number: number, start: start})
		if err != nil {
			return nil, err
		}
		read := answer.GetRead()
		number++
		if read.Length < length || (sealed && (!read.Sealed || read.Length > length)) ||
			read.Start != start || start+uint32(len(read.Values)) > read.Length {
			return nil, errors.New("loss: the server tells less of the list, or something else, than it has told before")
		}
		entries = append(entries, read.Values...)
		length, sealed = read.Length, read.Sealed
	}
	if len(entries) == 0 {
		return nil, errors.New("no decision: the list is sealed without any entry")
	}
	return entries, nil
}

// mode returns the most frequent entry; of several the smallest.
func mode(entries [][]byte) []byte {
	counts := map[string]int{}
	best := ""
	for _, entry := range entries {
		counts[string(entry)]++
	}
	for value, count := range counts {
		if count > counts[best] || (count == counts[best] && value < best) {
			best = value
		}
	}
	return []byte(best)
}
