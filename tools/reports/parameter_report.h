// What people and programs are told of which parameters train.
#ifndef WEFT_TOOLS_REPORTS_PARAMETER_REPORT_H_
#define WEFT_TOOLS_REPORTS_PARAMETER_REPORT_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "onnx_import/parameters/trainable.h"

namespace weft {

// One line without its end: "trains 201 of 214 tensors (109 M numbers); not: 12 tables and masks, 1
// constant; `graph_runner inspect --parameters` gives each reason".
std::string ParameterSummary(const std::vector<ParameterDecision>& decisions);

// A line for each: its name (with that of the file in brackets), its type, whether it trains, why.
std::string ParameterTable(const std::vector<ParameterDecision>& decisions);

// The same for programs.
nlohmann::ordered_json ParametersJson(const std::vector<ParameterDecision>& decisions);

}  // namespace weft

#endif  // WEFT_TOOLS_REPORTS_PARAMETER_REPORT_H_
