// The text of `plan --explain`: why a plan is the best.
#ifndef WEFT_TOOLS_REPORTS_PLAN_EXPLANATION_H_
#define WEFT_TOOLS_REPORTS_PLAN_EXPLANATION_H_

#include <string>

#include "graph/cluster_spec.h"
#include "nlohmann/json.hpp"
#include "placement/search/plan_search.h"

namespace weft {

// The plan with the --parallel that asks for it, its time in parts, its memory, and a row for each
// plan that was not taken.
std::string ExplanationText(const SearchResult& result, const ClusterSpec& cluster);
nlohmann::ordered_json ExplanationJson(const SearchResult& result, const ClusterSpec& cluster);

}  // namespace weft

#endif  // WEFT_TOOLS_REPORTS_PLAN_EXPLANATION_H_
