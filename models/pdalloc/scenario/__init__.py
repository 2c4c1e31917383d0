"""One YAML file, with variants, to typed objects."""

from pdalloc.scenario.build import Scenario, load_scenario, scenario_from_mapping

__all__ = ["Scenario", "load_scenario", "scenario_from_mapping"]
