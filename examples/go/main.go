// A client of StickyCAS: it plays one correct process, creates instances and watches them.
package main

//go:generate sh -c "protoc -I ../../proto --go_out=gen --go_opt=module=github.com/stickycas/stickycas/gen/go --go-grpc_out=gen --go-grpc_opt=module=github.com/stickycas/stickycas/gen/go ../../proto/stickycas/v1/*.proto"

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	pb "github.com/stickycas/stickycas/gen/go/stickycas/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
)

const usage = `usage: stickycas-go propose|create|watch --server HOST:PORT[,HOST:PORT...] [--credentials DIR] [--principal NAME] ...
       stickycas-go COMMAND --help shows the flags of a command`

func main() {
	os.Exit(run(os.Args[1:]))
}

// run returns the exit code: 0 done, 1 refused or given up, 2 wrong usage or unusable credentials.
func run(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, usage)
		return 2
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	var (
		servers     = flags.String("server", "", "`HOST:PORT` of the server; of a cluster: several, with commas")
		credentials = flags.String("credentials", "", "`folder` with ca.crt and token, or tls.crt and tls.key; without it: no TLS")
		principal   = flags.String("principal", "", "`name` of the caller, for servers without credentials")
		giveUpAfter = flags.Float64("give-up-after", 30, "`seconds` without any answer")
	)
	var command func(ctx context.Context, c *cluster) error
	required := []string{"server"}
	switch args[0] {
	case "propose":
		instance := flags.String("instance", "", "`name or id` of the instance")
		value := flags.String("value", "", "`text` to propose")
		unary := flags.Bool("unary", false, "use unary calls, not one stream")
		required = append(required, "instance", "value")
		command = func(ctx context.Context, c *cluster) error {
			decision, err := propose(ctx, c, *instance, []byte(*value), *unary)
			if err == nil {
				fmt.Printf("decided %s\n", decision)
			}
			return err
		}
	case "create":
		name := flags.String("name", "", "`name` of the instance")
		processes := flags.Uint("processes", 0, "n, the `number` of processes")
		warpSize := flags.Uint("warp-size", 0, "p, the `number` of processes in a warp")
		appendRounds := flags.Uint("append-rounds", 1, "q, the first `phases` of a warp in which it may append")
		readSize := flags.Uint("read-size", 0, "r, the largest `number` of entries that a read returns")
		roster := flags.String("roster", "", "the `principals` of processes 1, 2, 3, ..., with commas")
		patience := flags.Float64("patience", 1, "`seconds` for which phases wait for a process, in total")
		required = append(required, "name", "processes", "warp-size", "read-size", "roster")
		command = func(ctx context.Context, c *cluster) error {
			wait := durationpb.New(time.Duration(*patience * float64(time.Second)))
			return create(ctx, c, &pb.CreateRequest{
				Name:   *name,
				Roster: strings.Split(*roster, ","),
				Parameters: &pb.Parameters{
					Processes:      uint32(*processes),
					WarpSize:       uint32(*warpSize),
					ReadSize:       uint32(*readSize),
					AppendRounds:   uint32(*appendRounds),
					PatienceChoice: &pb.Parameters_Patience{Patience: wait},
				},
			})
		}
	case "watch":
		instance := flags.String("instance", "", "`name or id` of the instance")
		required = append(required, "instance")
		command = func(ctx context.Context, c *cluster) error { return watch(ctx, c, *instance) }
	default:
		fmt.Fprintln(os.Stderr, usage)
		return 2
	}
	if err := flags.Parse(args[1:]); err == flag.ErrHelp {
		return 0
	} else if err != nil {
		return 2 // flags has said what is wrong
	}
	if *credentials == "" {
		required = append(required, "principal")
	}
	for _, name := range required {
		if flags.Lookup(name).Value.String() == flags.Lookup(name).DefValue {
			return fail(2, fmt.Errorf("--%s is missing", name))
		}
	}
	if flags.NArg() > 0 {
		return fail(2, fmt.Errorf("unexpected argument %q", flags.Arg(0)))
	}
	options, err := dialOptions(*credentials, *principal)
	if err != nil {
		return fail(2, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c := newCluster(*servers, options, time.Duration(*giveUpAfter*float64(time.Second)))
	defer c.close()
	if err := command(ctx, c); err != nil {
		return fail(1, err)
	}
	return 0
}

func fail(exitCode int, err error) int {
	fmt.Fprintln(os.Stderr, "error:", err)
	return exitCode
}

// create prints the id of the instance. To repeat it is safe: the same name and parameters are the same instance.
func create(ctx context.Context, c *cluster, request *pb.CreateRequest) error {
	var response *pb.CreateResponse
	err := c.ask(ctx, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		response, err = pb.NewInstanceServiceClient(conn).Create(ctx, request)
		return err
	})
	if err == nil {
		fmt.Println(response.Instance.InstanceId)
	}
	return err
}
