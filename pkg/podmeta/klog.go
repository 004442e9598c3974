package podmeta

import (
	"github.com/go-logr/logr/funcr"
	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

// RouteKlog makes what client-go says through klog, which belongs to the process and
// otherwise writes to standard error, messages of log at debug level: what matters of
// it is told by mapping.Health. main calls it once, before Run.
func RouteKlog(log *zap.Logger) {
	log = log.Named("client-go")
	klog.SetLogger(funcr.New(func(prefix, args string) {
		if prefix != "" {
			args = prefix + ": " + args
		}
		log.Debug(args)
	}, funcr.Options{}))
}
