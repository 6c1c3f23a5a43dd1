// A controller of controller-runtime, for tests/cluster/test_scrape_others.py: it looks at the ConfigMaps of a namespace, one at a time.
package main

import (
	"context"
	"flag"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func main() {
	// --kubeconfig is a flag of controller-runtime's own.
	metrics := flag.String("metrics", "", "the address of /metrics")
	namespace := flag.String("namespace", "", "whose ConfigMaps are looked at")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Metrics: server.Options{BindAddress: *metrics},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{*namespace: {}}},
	})
	must(err)
	must(ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).Complete(reconciler{manager.GetClient()}))
	must(manager.Start(ctrl.SetupSignalHandler()))
}

type reconciler struct{ client.Client }

// Reconcile writes the annotation that the ConfigMap asks for, which the API server may refuse. One that asks to wait is waited
// for until it is deleted, and so are all behind it.
func (r reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	for {
		var found corev1.ConfigMap
		if err := r.Get(ctx, request.NamespacedName, &found); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		if found.Data["wait"] == "" {
			wanted := found.Data["annotation"]
			if _, done := found.Annotations[wanted]; done || wanted == "" {
				return reconcile.Result{}, nil
			}
			found.Annotations = map[string]string{wanted: ""}
			return reconcile.Result{}, r.Update(ctx, &found)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
