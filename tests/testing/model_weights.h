// What of two model files differs.
#ifndef WEFT_TESTS_TESTING_MODEL_WEIGHTS_H_
#define WEFT_TESTS_TESTING_MODEL_WEIGHTS_H_

#include <map>
#include <set>
#include <string>
#include <vector>

namespace weft::testing {

// The float initializers of a model file whose payloads are raw, by name.
using Weights = std::map<std::string, std::vector<float>>;
Weights WeightsOf(const std::string& path);

// The initializers whose payloads differ. Fails the test where anything else of the files does.
std::set<std::string> ChangedWeights(const std::string& before, const std::string& after);

}  // namespace weft::testing

#endif  // WEFT_TESTS_TESTING_MODEL_WEIGHTS_H_
