// What the commands say about tied tensors and about files in training mode.
#ifndef WEFT_TOOLS_REPORTS_TIE_TEXT_H_
#define WEFT_TOOLS_REPORTS_TIE_TEXT_H_

#include <string>
#include <vector>

#include "graph/graph.h"
#include "nlohmann/json.hpp"
#include "onnx_import/edit/inference_form.h"
#include "onnx_import/edit/tie_report.h"

namespace weft {

// Of a report, what concerns tensors that train in `graph`: kept ties and restored biases of one,
// copies of two; all that was untied or tied.
TieReport TiesThatTrain(const TieReport& report, const Graph& graph);

// "untied 110 tensors that the exporter had merged (all elements equal); kept 1 tie: wte.weight
// shared with lm_head"; "" without any.
std::string TieSummary(const TieReport& report);
// "a and b hold the same numbers, transposed", each.
std::vector<std::string> CopyTexts(const TieReport& report);

// The lines of `train`: the summary, and what --tie could do; "" for none. Control characters are
// escaped.
std::string TiesText(const TieReport& report, const Graph& graph);
// The lines of `inspect`, each tensor one.
std::string TieList(const TieReport& report, const Graph& graph);
nlohmann::ordered_json TiesJson(const TieReport& report, const Graph& graph);

// That the exported file will be in training mode, and the way out; "" where it will not.
std::string TrainingModeText(const TrainingModeNodes& nodes);

}  // namespace weft

#endif  // WEFT_TOOLS_REPORTS_TIE_TEXT_H_
