// The folders of keys of a cluster, as `graph_runner cluster keys` makes and renews them.
#ifndef WEFT_DISTRIBUTED_KEYS_CLUSTER_KEYS_H_
#define WEFT_DISTRIBUTED_KEYS_CLUSTER_KEYS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/keys/certificate.h"

namespace weft {

// A host, and by what else it is called in cluster files.
struct HostNames {
  std::string name;  // also the name of its folder
  std::vector<std::string> addresses;
};

// "a,b=10.0.0.2,10.0.0.3,d=10.0.0.4+fd00::4": hosts, each with its addresses after '='. A host may
// be called by its address alone. InvalidArgument naming the part that is wrong.
absl::StatusOr<std::vector<HostNames>> ParseHosts(std::string_view text);

// What MakeClusterKeys makes.
struct ClusterKeysOptions {
  std::string folder;  // made if it is missing, with mode 0700
  std::vector<HostNames> hosts;
  int64_t days = 365;  // how long certificates are valid; at least 1
  absl::Time now;
};

// What it made.
struct ClusterKeys {
  struct Made {
    std::string folder;
    Certificate certificate;
  };
  Certificate authority;
  bool is_new_authority = false;
  std::vector<Made> made;
};

// Makes a new key and certificate for each host and for the roles coordinator and observer, each in
// a folder of its own. The authority is made the first time, valid for ten years, and signs all
// later ones: a second call renews hosts or adds some. Every file is replaced in one step.
// Certificates are valid from an hour ago on, for clocks that differ.
//
// InvalidArgument: no host, or two of one name. FailedPrecondition: the authority expires before
// the certificates would. Errors of files name them.
absl::StatusOr<ClusterKeys> MakeClusterKeys(const ClusterKeysOptions& options);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_KEYS_CLUSTER_KEYS_H_
