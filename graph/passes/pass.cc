#include "graph/passes/pass.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/verifier.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {

PassPipeline& PassPipeline::Add(std::unique_ptr<Pass> pass) {
  passes_.push_back(std::move(pass));
  return *this;
}

PassPipeline& PassPipeline::Disable(std::set<std::string> names) {
  disabled_.merge(names);
  return *this;
}

PassPipeline& PassPipeline::DumpAfterEach(GraphObserver dump) {
  dump_ = std::move(dump);
  return *this;
}

std::vector<std::string> PassPipeline::pass_names() const {
  std::vector<std::string> names;
  for (const std::unique_ptr<Pass>& pass : passes_) names.emplace_back(pass->name());
  return names;
}

absl::StatusOr<std::vector<std::string>> PassPipeline::Run(Graph& graph) {
  const std::vector<std::string> names = pass_names();
  for (const std::string& disabled : disabled_) {
    if (std::ranges::find(names, disabled) != names.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat("there is no pass '", disabled,
                                                   "' to disable; the passes are ",
                                                   absl::StrJoin(names, ", ")));
  }
  WEFT_RETURN_IF_ERROR(Annotate(VerifyGraph(graph), "before the first pass"));
  std::vector<std::string> effective;
  for (const std::unique_ptr<Pass>& pass : passes_) {
    const std::string name(pass->name());
    if (disabled_.contains(name)) continue;
    const absl::StatusOr<bool> changed = pass->Run(graph);
    if (!changed.ok()) return Annotate(changed.status(), absl::StrCat("pass ", name));
    WEFT_RETURN_IF_ERROR(Annotate(VerifyGraph(graph), absl::StrCat("after pass ", name)));
    if (!*changed) continue;
    effective.push_back(name);
    if (dump_) WEFT_RETURN_IF_ERROR(dump_(name, graph));
  }
  return effective;
}

PassPipeline SimplifyPipeline(NodeEvaluator& evaluator) {
  PassPipeline pipeline;
  pipeline.Add(NewInferShapesPass())
      .Add(NewFoldConstantsPass(evaluator))
      .Add(NewMergeCommonSubexpressionsPass())
      .Add(NewRemoveDeadCodePass());
  return pipeline;
}

}  // namespace weft
