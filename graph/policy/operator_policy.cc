#include "graph/policy/operator_policy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "graph/schema_lookup.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"

namespace weft {
namespace {

constexpr char kAllowFlag[] = "--allow-ops";
constexpr char kDenyFlag[] = "--deny-ops";

// What patterns call a domain: ONNX's own has a name for them.
std::string_view DomainForPatterns(std::string_view domain) {
  return CanonicalDomain(domain).empty() ? "ai.onnx" : domain;
}

// Domain and name of "ai.weft::Send" and of "Relu".
std::pair<std::string_view, std::string_view> SplitName(std::string_view full) {
  const size_t at = full.find("::");
  if (at == std::string_view::npos) return {"ai.onnx", full};
  return {DomainForPatterns(full.substr(0, at)), full.substr(at + 2)};
}

// Names of operators come from files.
std::string Escaped(const std::string& text) { return absl::Utf8SafeCEscape(text); }

OperatorPolicy& ProcessPolicy() {
  static OperatorPolicy* const policy = new OperatorPolicy;
  return *policy;
}

}  // namespace

bool OperatorPolicy::Pattern::Fits(std::string_view of_domain, std::string_view op) const {
  return MatchesPattern(name, op) && MatchesPattern(domain, of_domain);
}

absl::StatusOr<std::vector<OperatorPolicy::Pattern>> OperatorPolicy::Parse(
    const std::string& flag, const std::vector<std::string>& texts) {
  std::vector<Pattern> patterns;
  for (const std::string& text : texts) {
    const auto [domain, name] = SplitName(text);
    const bool has_domain = text.rfind("::", 0) != 0;
    if (!has_domain || name.empty() || name.find(':') != std::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " '", Escaped(text),
                       "' is no pattern of operators; expected NAME, for ONNX's own, or "
                       "DOMAIN::NAME, such as 'example::*'"));
    }
    patterns.push_back({text, std::string(domain), std::string(name)});
  }
  return patterns;
}

absl::StatusOr<OperatorPolicy> OperatorPolicy::Create(const std::vector<std::string>& allow,
                                                      const std::vector<std::string>& deny) {
  OperatorPolicy policy;
  WEFT_ASSIGN_OR_RETURN(policy.allow_, Parse(kAllowFlag, allow));
  WEFT_ASSIGN_OR_RETURN(policy.deny_, Parse(kDenyFlag, deny));
  return policy;
}

absl::Status OperatorPolicy::Check(std::string_view domain, std::string_view op) const {
  if (allows_all()) return absl::OkStatus();
  const std::string_view of_domain = DomainForPatterns(domain);
  const std::string full = Escaped(FullOpName(CanonicalDomain(domain), op));
  for (const Pattern& pattern : deny_) {
    if (!pattern.Fits(of_domain, op)) continue;
    return absl::PermissionDeniedError(absl::StrCat("operator '", full, "' is denied by ",
                                                    kDenyFlag, " '", Escaped(pattern.text), "'"));
  }
  const bool is_allowed =
      allow_.empty() || std::any_of(allow_.begin(), allow_.end(), [&](const Pattern& pattern) {
        return pattern.Fits(of_domain, op);
      });
  if (is_allowed) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("operator '", full, "' is not allowed: no pattern of ", kAllowFlag,
                   " fits it; add ", kAllowFlag, " '", full, "' if you trust what brings it"));
}

std::vector<std::string> OperatorPolicy::Unmatched(
    const std::vector<std::string>& operators) const {
  std::vector<std::string> unmatched;
  const auto look = [&](const char* flag, const std::vector<Pattern>& patterns) {
    for (const Pattern& pattern : patterns) {
      bool knows_domain = false;
      bool fits = false;
      for (const std::string& full : operators) {
        const auto [domain, name] = SplitName(full);
        knows_domain = knows_domain || domain == pattern.domain;
        fits = fits || pattern.Fits(domain, name);
      }
      if (knows_domain && !fits) {
        unmatched.push_back(absl::StrCat(flag, " '", Escaped(pattern.text), "'"));
      }
    }
  };
  look(kAllowFlag, allow_);
  look(kDenyFlag, deny_);
  return unmatched;
}

void SetOperatorPolicy(OperatorPolicy policy) { ProcessPolicy() = std::move(policy); }

const OperatorPolicy& CurrentOperatorPolicy() { return ProcessPolicy(); }

}  // namespace weft
