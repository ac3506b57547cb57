"""DIJobs: their templates and manifests, and speaking to Kubernetes about them."""
