"""Makes the shared test modules beside this file importable from every folder of tests."""
