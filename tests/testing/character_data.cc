#include "tests/testing/character_data.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "training/data/data_file.h"

namespace weft::testing {

std::string ReadCorpusText(const std::string& corpora) {
  std::ifstream file(corpora + "/text-iris/tinyshakespeare.txt");
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

Tensor CharacterIds(const std::string& text, int64_t rows, int64_t offset) {
  const std::set<char> characters(text.begin(), text.end());
  const std::vector<char> sorted(characters.begin(), characters.end());
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < rows * kCharactersPerRow; ++i) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), text[i + offset]);
    ids.push_back(at - sorted.begin());
  }
  return Tensor::Of<int64_t>(Shape{rows, kCharactersPerRow}, ids);
}

std::map<std::string, std::string> WriteCharacterData(const std::string& text, int64_t rows,
                                                      const std::string& folder) {
  const std::map<std::string, std::string> paths = {{"idx", folder + "/text-x.npy"},
                                                    {"labels", folder + "/text-labels.npy"}};
  std::ofstream(paths.at("idx"), std::ios::binary) << ToNpy(CharacterIds(text, rows, 0)).value();
  std::ofstream(paths.at("labels"), std::ios::binary) << ToNpy(CharacterIds(text, rows, 1)).value();
  return paths;
}

}  // namespace weft::testing
