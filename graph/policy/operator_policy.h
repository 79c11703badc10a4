// OperatorPolicy: which operators files, libraries and peers may bring into this process.
#ifndef WEFT_GRAPH_POLICY_OPERATOR_POLICY_H_
#define WEFT_GRAPH_POLICY_OPERATOR_POLICY_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// Two lists of patterns: what is allowed (all, where there is no such list), and what is denied
// whatever is allowed. A pattern is "DOMAIN::NAME", or "NAME" for one of ONNX's own domain, which
// is also called "ai.onnx"; '*' and '?' are wildcards in both parts (platform/text/name_pattern.h),
// so "*" is all of ONNX's own operators and "*::*" all there are. Capital letters count. A value;
// immutable, so thread-safe.
class OperatorPolicy {
 public:
  OperatorPolicy() = default;  // allows all
  // An empty `allow` allows all. InvalidArgument, naming the flag and the pattern, for one without
  // a domain or a name.
  static absl::StatusOr<OperatorPolicy> Create(const std::vector<std::string>& allow,
                                               const std::vector<std::string>& deny);

  bool allows_all() const { return allow_.empty() && deny_.empty(); }
  // OK, or PermissionDenied with the operator and the flag that forbids it. `domain` "" and
  // "ai.onnx" are the same.
  absl::Status Check(std::string_view domain, std::string_view op) const;
  // Those patterns that fit none of `operators` (full names: "Relu", "ai.weft::Send") although they
  // are of a domain that is among theirs: most likely mistyped. "--deny-ops 'Lop'", in order.
  std::vector<std::string> Unmatched(const std::vector<std::string>& operators) const;

 private:
  struct Pattern {
    std::string text;  // as it was given
    std::string domain;
    std::string name;
    bool Fits(std::string_view of_domain, std::string_view op) const;
  };

  static absl::StatusOr<std::vector<Pattern>> Parse(const std::string& flag,
                                                    const std::vector<std::string>& texts);

  std::vector<Pattern> allow_;
  std::vector<Pattern> deny_;
};

// The policy of this process, as OpRegistry::Global() is its registry. Set it once, before the
// first library or model is loaded and before other threads run. It holds for what comes from
// outside:
//  - nodes of a model's file, those of its subgraphs and functions too (ModelFile::Load),
//  - nodes of a graph that a peer or a dump sends (GraphFromOnnx),
//  - operators of a library: none of their functions runs, nor are they known (LoadOpLibrary).
// It does not hold for what this process adds itself, such as gradients and updates.
void SetOperatorPolicy(OperatorPolicy policy);
const OperatorPolicy& CurrentOperatorPolicy();

}  // namespace weft

#endif  // WEFT_GRAPH_POLICY_OPERATOR_POLICY_H_
